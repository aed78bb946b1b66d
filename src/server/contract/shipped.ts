/**
 * Contract digests of the examples that ship with Escrow: they run ungated on the rehearsal engine, marked synthetic.
 * A unit test freezes the examples and compares.
 */
export const shippedContracts = {
  'utc-timestamp': '97f3397512c4b49abe04567e1b3b1d299261994abb3368f0c8d1f1a562af7cfb',
  'cart-cents': '67c80ff55f061cb7ba5df07de761cda1f9c75bfdb115b458b4d92566cfb0db3c',
} as const;
