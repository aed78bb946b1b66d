/**
 * Contract digests of the examples that ship with Escrow: they run ungated on the rehearsal engine, marked synthetic.
 * A unit test freezes the examples and compares.
 */
export const shippedContracts = {
  'utc-timestamp': 'e8b709e6762141aa4e3a4a47252149d1ff0a81941e3027624a405967e93ff402',
  'cart-cents': 'ed4d00228a5d21e393aefaf242d3405826ad6178f6f63469cf0de765556de13a',
} as const;
