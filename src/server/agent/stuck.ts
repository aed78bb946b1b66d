/** One step as the detector sees it: texts are compared, not understood. */
export interface Step {
  /** Tool and arguments; null for a turn without a call. */
  readonly action: string | null;
  readonly observation: string;
  readonly error: boolean;
}

export interface StuckLimits {
  /** The same action with the same observation, in a row. */
  readonly repeat: number;
  /** The same action with an error, in a row. */
  readonly error: number;
  /** Turns without a call, in a row. */
  readonly monologue: number;
  /** Two actions taking turns, steps in a row. */
  readonly alternation: number;
}

/** The limits that these tools have elsewhere (facts/openhands-tools). */
export const stuckLimits: StuckLimits = { repeat: 4, error: 3, monologue: 3, alternation: 6 };

export type Stuck = 'repeated_action' | 'repeated_error' | 'monologue' | 'alternation';

/** Names the loop that the newest steps form, or null. Pure. */
export function findStuck(steps: readonly Step[], limits: StuckLimits = stuckLimits): Stuck | null {
  const tail = (n: number): readonly Step[] | null => (steps.length < n ? null : steps.slice(-n));
  const talk = tail(limits.monologue);
  if (talk?.every((s) => s.action === null) === true) return 'monologue';
  const acts = steps.filter((s) => s.action !== null);
  const last = acts.at(-1);
  if (last === undefined || steps.at(-1)?.action === null) return null;
  const same = (n: number, test: (s: Step) => boolean): boolean => acts.length >= n && acts.slice(-n).every(test);
  if (same(limits.error, (s) => s.error && s.action === last.action)) return 'repeated_error';
  if (same(limits.repeat, (s) => s.action === last.action && s.observation === last.observation))
    return 'repeated_action';
  const other = acts.at(-2);
  if (other !== undefined && other.action !== last.action && acts.length >= limits.alternation) {
    const recent = acts.slice(-limits.alternation).toReversed();
    const alternates = recent.every((s, i) => {
      const model = i % 2 === 0 ? last : other;
      return s.action === model.action && s.observation === model.observation;
    });
    if (alternates) return 'alternation';
  }
  return null;
}
