import { EscrowError } from '../protocol/errors.ts';
import { ContractDigest, SessionId } from '../protocol/primitives.ts';
import type { SalvagedContainer } from '../protocol/salvage.ts';
import type { CandidateView, SessionSummary, SessionView } from '../protocol/views.ts';
import { UsageError } from './exit-code.ts';
import type { KernelLink } from './kernel-access.ts';

/** The one member whose key begins with what a person typed. Throws UsageError with `next` when there is none or several. */
function unique<T>(what: string, typed: string, all: readonly T[], keyOf: (item: T) => string, next: string): T {
  const found = all.filter((item) => keyOf(item).startsWith(typed));
  const [only] = found;
  if (found.length === 1 && only !== undefined) return only;
  throw new UsageError(
    found.length === 0
      ? `no ${what} begins with "${typed}"`
      : `"${typed}" is the beginning of ${found.length} ${what}s; give more of it`,
    next,
  );
}

/** Pages through the whole list, newest first. */
export async function allSessions(kernel: KernelLink, root?: string): Promise<SessionSummary[]> {
  const sessions: SessionSummary[] = [];
  let seen: SessionSummary | undefined;
  for (;;) {
    const page = await kernel.call('session/list', {
      limit: 500,
      ...(root === undefined ? {} : { root }),
      ...(seen === undefined ? {} : { before: seen.updatedAt, beforeSession: seen.id }),
    });
    sessions.push(...page.sessions);
    const last = page.sessions.at(-1);
    if (!page.more || last === undefined) return sessions;
    seen = last;
  }
}

const startOne = 'Start one with: escrow session start FILE --model NAME';

/** A session by id, by the unique beginning of one, or `last`. Throws UsageError or EscrowError NotFound. */
export async function pickSession(kernel: KernelLink, typed: string): Promise<SessionView> {
  const exact = SessionId.safeParse(typed);
  if (exact.success) {
    try {
      return await kernel.call('session/get', { session: exact.data });
    } catch (error) {
      if (!EscrowError.is(error, 'NotFound')) throw error;
      // A long beginning has the form of an id, too.
    }
  }
  const sessions = await allSessions(kernel);
  const newest = sessions.toSorted((a, b) => b.createdAt - a.createdAt)[0];
  if (typed === 'last') {
    if (newest === undefined) throw new UsageError('there is no session yet', startOne);
    return kernel.call('session/get', { session: newest.id });
  }
  const next = sessions.length === 0 ? startOne : 'List them with: escrow session list';
  const found = unique('session', typed, sessions, (session) => session.id, next);
  return kernel.call('session/get', { session: found.id });
}

/** A candidate by the beginning of its digest; without one, the newest. Throws UsageError. */
export function pickCandidate(session: SessionView, typed: string | undefined): CandidateView {
  const seeIt = `See what it has with: escrow session show ${session.id}`;
  if (typed !== undefined) {
    return unique(
      'candidate of this session',
      typed.toLowerCase(),
      session.candidates,
      (candidate) => candidate.digest,
      seeIt,
    );
  }
  const newest = session.candidates.at(-1);
  if (newest === undefined) throw new UsageError('this session has no candidate', seeIt);
  return newest;
}

/** A frozen contract by the beginning of its digest. Throws UsageError. */
export async function pickContract(kernel: KernelLink, typed: string): Promise<ContractDigest> {
  const exact = ContractDigest.safeParse(typed);
  if (exact.success) return exact.data;
  const { contracts } = await kernel.call('contract/list', {});
  const next = 'Name the contract by its file, or freeze it first: escrow contract freeze FILE';
  return unique('frozen contract', typed, contracts, (contract) => contract.digest, next).digest;
}

/** A container that was read out, by the beginning of its id, its name, or `last`. Throws UsageError. */
export async function pickSalvaged(kernel: KernelLink, typed: string): Promise<SalvagedContainer> {
  const all: SalvagedContainer[] = [];
  for (let more = true; more;) {
    const last = all.at(-1);
    const page = await kernel.call('salvage/list', {
      limit: 500,
      ...(last === undefined ? {} : { before: { at: last.at, engineId: last.engineId } }),
    });
    all.push(...page.containers);
    more = page.more;
  }
  const [newest] = all;
  if (newest === undefined) {
    throw new UsageError(
      'nothing was read out of containers that no record knew',
      'There is nothing to do. Containers that are there are listed by: escrow kernel status',
    );
  }
  if (typed === 'last') return newest;
  const [named, ...others] = all.filter(({ name }) => name === typed);
  if (named !== undefined && others.length === 0) return named;
  return unique('salvaged container', typed, all, (container) => container.engineId, 'List them with: escrow salvage');
}

/** True for what looks like a digest or the beginning of one rather than like a file. */
export function looksLikeDigest(typed: string): boolean {
  return /^[0-9a-f]{6,64}$/.test(typed);
}
