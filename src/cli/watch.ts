import { unreachable, type FencingToken, type SessionId } from '../protocol/primitives.ts';
import type { AttemptView, LiveInference } from '../protocol/attempt.ts';
import type { SessionView } from '../protocol/views.ts';
import { EscrowError } from '../protocol/errors.ts';
import { activityLines, candidateLines, duration, settlementLines, short, type Lines } from './format.ts';
import type { KernelLink } from './kernel-access.ts';
import { styled, type Part } from './output.ts';
import { visibleLine } from './visible.ts';

/** What has been said about a session so far, so that each thing is said once. */
export interface Told {
  readonly state: string;
  readonly phases: ReadonlyMap<string, string>;
  readonly activity: ReadonlyMap<string, number>;
  readonly settled: ReadonlySet<string>;
  readonly verified: ReadonlySet<string>;
}

export const nothingTold: Told = {
  state: '',
  phases: new Map(),
  activity: new Map(),
  settled: new Set(),
  verified: new Set(),
};

/** The news in a view against what was told before. Pure. */
export function news(told: Told, session: SessionView): { readonly told: Told; readonly lines: Lines } {
  const lines: (readonly Part[])[] = [];
  const phases = new Map(told.phases);
  const activity = new Map(told.activity);
  const settled = new Set(told.settled);
  const verified = new Set(told.verified);

  if (session.state !== told.state && session.state === 'queued') {
    lines.push([styled('yellow', `queued, number ${session.queuePosition ?? '?'}: another sandbox has the slot`)]);
  }
  for (const attempt of session.attempts) {
    for (const item of attempt.activity) {
      if (item.n <= (activity.get(attempt.id) ?? -1)) continue;
      activity.set(attempt.id, item.n);
      lines.push(...activityLines(item));
    }
    if (phases.get(attempt.id) !== attempt.phase) {
      phases.set(attempt.id, attempt.phase);
      lines.push([
        styled('bold', `attempt ${attempt.number}: `),
        attempt.phase.replaceAll('_', ' '),
        ...phaseDetail(attempt),
      ]);
    }
    if (attempt.settlement !== null && attempt.settlement.settledAt !== null && !settled.has(attempt.id)) {
      settled.add(attempt.id);
      lines.push(...settlementLines(attempt.settlement));
    }
  }
  for (const candidate of session.candidates) {
    for (const verification of candidate.verifications) {
      const key = `${verification.runId} ${verification.state}`;
      if (verified.has(key)) continue;
      verified.add(key);
      if (verification.state === 'done') lines.push(...candidateLines(candidate));
      else lines.push([`verification of ${short(candidate.digest)}: ${verification.state}`]);
    }
  }
  return { told: { state: session.state, phases, activity, settled, verified }, lines };
}

function phaseDetail(attempt: AttemptView): readonly Part[] {
  if (attempt.pending !== null) return [` · waits for ${attempt.pending.waitingFor}`];
  if (attempt.phase === 'settled' && attempt.outcome !== null)
    return [` · ${attempt.outcome.kind} · ${attempt.outcome.reason}`];
  return [];
}

/** One line on a running request: what it does, for how long, and the end of what it said. Pure. */
export function liveLine(live: LiveInference): string {
  const since = duration(live.sinceMs);
  switch (live.state) {
    case 'loading':
      return `request ${live.n}: the engine loads or reads the prompt, ${since}`;
    case 'thinking':
    case 'answering':
      return `request ${live.n}: ${live.state}, ${since}, ${live.chars} characters · ${visibleLine(live.text.slice(-200)).trim().slice(-60)}`;
    default:
      return unreachable(live.state, 'state of a request');
  }
}

/** True when nothing more will happen by itself: the last attempt has ended and no verification is queued or running. */
export function atRest(session: SessionView): boolean {
  if (session.state !== 'waiting' && session.state !== 'parked' && session.state !== 'closed') return false;
  // Verification of what an attempt brought follows by itself, a moment after the attempt has settled.
  const newest = session.candidates.at(-1);
  const expected = newest !== undefined && newest.eligible && newest.attempt === session.attempts.at(-1)?.id;
  if (expected && newest.verifications.length === 0 && newest.decision === null) return false;
  return session.candidates.every((candidate) =>
    candidate.verifications.every((verification) => verification.state === 'done'),
  );
}

export interface WatchOptions {
  /** Called with each new view. */
  readonly onView: (session: SessionView) => void;
  /** How far the running request has come; null when none runs. Shown, never evidence. */
  readonly onLive?: (live: LiveInference | null) => void;
  /** At Ctrl-C the session is cancelled with this token, and watched until it is settled. Null: watching just ends. */
  readonly token: FencingToken | null;
  readonly interrupted: AbortSignal;
}

/**
 * Follows a session until it is at rest. Every notification leads to one fetch at most: while one is under way,
 * further ones are remembered as a single "again". Throws EscrowError NoKernel when the connection ends.
 */
export async function watch(kernel: KernelLink, session: SessionId, options: WatchOptions): Promise<SessionView> {
  const { promise, resolve, reject } = Promise.withResolvers<SessionView>();
  let fetching = false;
  let again = false;
  let done = false;

  const look = async (): Promise<void> => {
    if (fetching) {
      again = true;
      return;
    }
    fetching = true;
    try {
      do {
        again = false;
        const view = await kernel.call('session/get', { session });
        options.onView(view);
        if (atRest(view)) {
          done = true;
          resolve(view);
        }
      } while (again && !done);
    } catch (error) {
      reject(error);
    } finally {
      fetching = false;
    }
  };
  const stop = (): void => {
    const { token } = options;
    if (token === null) {
      void look()
        .then(() => kernel.call('session/get', { session }))
        .then(resolve, reject);
      return;
    }
    kernel.call('session/cancel', { session, token }).then(look, (error: unknown) => {
      // It came to rest by itself in the meantime; `look` sees that.
      if (EscrowError.is(error, 'WrongState')) void look();
      else reject(error);
    });
  };

  const ends = [
    kernel.on('evidence/events', () => void look()),
    kernel.on('kernel/changed', () => void look()),
    kernel.on('session/live', (params) => {
      if (params.session === session) options.onLive?.(params.live);
    }),
  ];
  options.interrupted.addEventListener('abort', stop, { once: true });
  void kernel.ended.then((reason) =>
    reject(
      new EscrowError(
        'NoKernel',
        `the connection to the Kernel ended: ${reason}`,
        'See what it observed with: escrow session show last',
        { session },
      ),
    ),
  );
  try {
    await kernel.call('evidence/subscribe', { lastSeenSeq: Number.MAX_SAFE_INTEGER });
    if (options.interrupted.aborted) stop();
    void look();
    return await promise;
  } finally {
    options.interrupted.removeEventListener('abort', stop);
    for (const end of ends) end();
  }
}
