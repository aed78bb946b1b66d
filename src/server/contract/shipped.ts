/**
 * Contract digests of the examples that ship with Escrow: they run ungated on the rehearsal engine, marked synthetic.
 * A unit test freezes the examples and compares.
 */
export const shippedContracts = {
  'utc-timestamp': '144b2a40099614598dd284e85b5bbad5994ff8601eaf67daed2723548f98dd38',
  'cart-cents': 'ed4d00228a5d21e393aefaf242d3405826ad6178f6f63469cf0de765556de13a',
} as const;
