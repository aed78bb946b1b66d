import type { InferenceOptions, LoopSwitches } from '../../protocol/binding.ts';

/**
 * Options where nobody asked for others. 16,384 tokens hold some twelve turns on small files; their cache takes 2.4 GB on
 * usual models of 4 to 8 B (36 layers, 8 heads of 128, 16 bits). 1,536 is the contract's default output budget. Greedy and seeded, so that an attempt
 * can be compared with another. Thinking is off: with this output budget it would eat the answer.
 */
export const defaultOptions: InferenceOptions = {
  numCtx: 16_384,
  numPredict: 1536,
  temperature: 0,
  seed: 1,
  think: false,
  keepAlive: '10m',
  draftNumPredict: 0,
};

/** All help that asks nothing of the model; executing calls that were printed as text is left to an explicit binding. */
export const defaultSwitches: LoopSwitches = {
  viewBeforeEdit: true,
  nearestMatch: true,
  repeatFailure: true,
  wholeFile: true,
  nudgeEmptyTurn: true,
  executeTextCalls: false,
  finishGate: true,
};

/** The default switches with what was asked for instead. */
export function withSwitches(
  asked: { readonly [K in keyof LoopSwitches]?: LoopSwitches[K] | undefined } | undefined,
): LoopSwitches {
  const given = Object.entries(asked ?? {}).filter(([, value]) => value !== undefined);
  return { ...defaultSwitches, ...Object.fromEntries(given) };
}
