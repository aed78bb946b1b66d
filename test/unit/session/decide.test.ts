import { describe, expect, it } from 'vitest';
import type { Command } from '../../../src/server/session/commands.ts';
import { evolve } from '../../../src/server/session/evolve.ts';
import { leaseSlackMs } from '../../../src/server/session/decide.ts';
import { next } from '../../../src/server/session/next.ts';
import { mostInterrupted, recordedVerificationOf } from '../../../src/server/session/recovery-table.ts';
import { interrupted } from '../../../src/server/session/state.ts';
import { candidateView, isOpen } from '../../../src/server/session/view.ts';
import type { FencingToken, RelPath } from '../../../src/protocol/primitives.ts';
import {
  artefact,
  at,
  complete,
  controller,
  ids,
  limit,
  receipt,
  SessionHistory,
  type Place,
} from '../../fixtures/session.ts';

const attempt = ids.attempt;
const places = [
  'new',
  'queued',
  'reserved',
  'provisioning',
  'running',
  'quiescing',
  'collecting',
  'stopping',
  'pending',
  'releasing',
  'released',
  'settled',
] as const;

/** One command of each kind that concerns an attempt, as the driver would send it. */
const commands = {
  reserve: { kind: 'reserve', holder: 'k' },
  provision: { kind: 'provision', attempt, container: 'c' },
  container: { kind: 'container', attempt, state: 'created', engineId: 'c1' },
  limits: { kind: 'limits', attempt, limits: [limit] },
  run: { kind: 'run', attempt, files: 1, bytes: 1 },
  'count-request': { kind: 'count-request', attempt, n: 1, boundTokens: 10, proven: true },
  turn: { kind: 'turn', attempt, n: 1, receipt, request: artefact, response: artefact },
  failure: {
    kind: 'failure',
    attempt,
    n: 1,
    failure: { kind: 'transport', code: 'x', message: '' },
    receipt: null,
    request: null,
    response: null,
  },
  activity: { kind: 'activity', attempt, item: { kind: 'tool', title: 't', text: '', ok: true } },
  end: { kind: 'end', attempt, end: { kind: 'finished', message: '' } },
  settle: { kind: 'settle', attempt, trigger: 'cancel' },
  revoke: { kind: 'step', attempt, step: 'revoke', observed: true, facts: {} },
  quiesce: { kind: 'step', attempt, step: 'quiesce', observed: true, facts: {} },
  stop: { kind: 'step', attempt, step: 'stop', observed: true, facts: {} },
  release: { kind: 'step', attempt, step: 'release', observed: true, facts: {} },
  collected: { kind: 'collected', attempt, collection: complete },
  pend: { kind: 'pend', attempt, waitingFor: 'x' },
  unblock: { kind: 'unblock', attempt, seen: 'x' },
  'finish-settlement': { kind: 'finish-settlement', attempt, candidate: null },
  queue: { kind: 'queue', attempt: ids.other, feedback: null, token: null },
  unqueue: { kind: 'unqueue', reason: 'x' },
  close: { kind: 'close', reason: 'x' },
} as const satisfies Record<string, Command>;

type At = (typeof places)[number];
const working: readonly At[] = ['reserved', 'provisioning', 'running'];
const settlingPlaces: readonly At[] = ['quiescing', 'collecting', 'stopping', 'releasing', 'released'];
/** What was observed may be recorded anywhere before the end. */
const beforeTheEnd: readonly At[] = [...working, ...settlingPlaces, 'pending'];

/** Where each command is accepted; everywhere else it must be refused. */
const accepted: Record<keyof typeof commands, readonly At[]> = {
  reserve: ['queued'],
  provision: ['reserved'],
  // Only where one was intended.
  container: beforeTheEnd.filter((place) => place !== 'reserved'),
  limits: beforeTheEnd,
  run: [],
  'count-request': ['running'],
  turn: [],
  failure: [],
  activity: beforeTheEnd,
  end: working,
  // The first trigger stands: later ones change nothing, and are no fault.
  settle: [...beforeTheEnd, 'settled'],
  revoke: settlingPlaces,
  quiesce: ['quiescing'],
  stop: ['stopping'],
  release: ['releasing', 'released'],
  collected: ['collecting'],
  pend: settlingPlaces,
  unblock: ['pending'],
  'finish-settlement': ['released'],
  queue: ['new', 'settled'],
  unqueue: ['queued'],
  close: ['new', 'queued', 'settled'],
};

describe('the decider, every place × every command', () => {
  for (const place of places) {
    for (const name of Object.keys(commands) as (keyof typeof commands)[]) {
      const wanted = accepted[name].includes(place);
      it(`${place} × ${name}: ${wanted ? 'accepted' : 'refused'}`, () => {
        const history = at(place);
        const before = history.state;
        const decision = history.ask(commands[name]);
        expect(decision.ok).toBe(wanted);
        expect(history.state).toBe(before);
        if (!decision.ok) expect(decision.refusal.next).not.toBe('');
      });
    }
  }
});

describe('requests and budgets', () => {
  it('counts a request before it is sent and never repeats one whose outcome is unknown', () => {
    const history = at('running').do(commands['count-request']);
    expect(history.ask({ ...commands['count-request'], n: 2 }).ok).toBe(false);
    history.do(commands.turn);
    expect(history.ask(commands['count-request']).ok).toBe(false);
    expect(history.ask({ ...commands['count-request'], n: 2 }).ok).toBe(true);
  });

  it('refuses the request after the last one of the budget', () => {
    const history = at('running');
    for (const n of [1, 2, 3]) history.do({ ...commands['count-request'], n }, { ...commands.turn, n });
    const decision = history.ask({ ...commands['count-request'], n: 4 });
    expect(decision).toMatchObject({ ok: false, refusal: { code: 'BudgetSpent' } });
  });

  it('refuses an attempt when the ledger is spent, also when other sessions spent it', () => {
    const history = new SessionHistory();
    history.now.spent = 2;
    expect(history.ask(commands.queue)).toMatchObject({ ok: false, refusal: { code: 'BudgetSpent' } });
  });

  it('a failure is kept when it arrives after settlement began; a result is not accepted any more', () => {
    const history = at('running').do(commands['count-request'], commands.settle);
    expect(history.ask(commands.turn).ok).toBe(false);
    expect(history.ask(commands.failure).ok).toBe(true);
  });
});

describe('lease and epoch', () => {
  it('accepts work right before the lease ends and refuses it at that instant', () => {
    const until = 600_000 + leaseSlackMs;
    const history = at('running');
    history.now.mono = until - 1;
    expect(history.ask(commands['count-request']).ok).toBe(true);
    history.now.mono = until;
    expect(history.ask(commands['count-request'])).toMatchObject({ ok: false, refusal: { code: 'StaleAuthority' } });
    expect(history.do(commands.end).state.attempts[0]).toMatchObject({
      phase: 'quiescing',
      end: null,
      settling: { trigger: 'lease_expired' },
    });
  });

  it('lets a Kernel of a later epoch settle an attempt and nothing else', () => {
    const history = at('running');
    history.now.epoch = 2;
    expect(history.ask(commands['count-request']).ok).toBe(false);
    expect(history.ask({ kind: 'settle', attempt, trigger: 'kernel_restart' }).ok).toBe(true);
  });
});

describe('control', () => {
  it('each grant raises the token; a stale one queues nothing', () => {
    const history = at('new').do({ kind: 'grant-control', controller, how: 'start' });
    expect(history.state.token).toBe(1);
    expect(history.ask({ ...commands.queue, token: 0 as FencingToken })).toMatchObject({
      ok: false,
      refusal: { code: 'StaleAuthority' },
    });
    expect(history.ask({ ...commands.queue, token: 1 as FencingToken }).ok).toBe(true);
  });

  it('another client needs to take over; the same client comes back', () => {
    const history = at('new').do({ kind: 'grant-control', controller, how: 'start' });
    const other = { ...controller, clientId: 'window-bbbbbbbb' as typeof ids.client };
    expect(history.ask({ kind: 'grant-control', controller: other, how: 'attach' })).toMatchObject({
      ok: false,
      refusal: { code: 'NotController' },
    });
    expect(history.ask({ kind: 'grant-control', controller: other, how: 'take-over' }).ok).toBe(true);
    expect(history.ask({ kind: 'grant-control', controller, how: 'attach' })).toMatchObject({
      ok: true,
      events: [{ data: { how: 'reload' } }],
    });
  });

  it('settlement advances the token, so the former controller can do nothing', () => {
    const history = at('running');
    const before = history.state.token;
    expect(history.do(commands.settle).state.token).toBe(before + 1);
  });
});

describe('settlement', () => {
  it('the first trigger stands', () => {
    const history = at('running').do(
      { ...commands.settle, trigger: 'window_close' },
      { ...commands.settle, trigger: 'cancel' },
    );
    expect(history.state.attempts[0]?.settling?.trigger).toBe('window_close');
  });

  it('is never finished before stop and absence were observed', () => {
    const history = at('stopping').do({ ...commands.stop, observed: true });
    expect(history.ask(commands['finish-settlement']).ok).toBe(false);
    history.do({ ...commands.release, observed: true });
    expect(history.ask(commands['finish-settlement']).ok).toBe(true);
  });

  it('an unconfirmed stop stays pending, in the phase it was blocked in, until something is seen', () => {
    const history = at('pending');
    expect(history.state.attempts[0]).toMatchObject({ phase: 'cancellation_pending', container: { state: 'unknown' } });
    expect(next(history.state.attempts[0]!)).toEqual({ kind: 'observe', waitingFor: 'stop' });
    history.do(commands.unblock);
    expect(history.state.attempts[0]?.phase).toBe('stopping');
  });

  it('an attempt that never intended a container ends without one', () => {
    const history = at('reserved').do(commands.settle);
    expect(next(history.state.attempts[0]!)).toEqual({ kind: 'finish' });
    history.do(commands['finish-settlement']);
    expect(history.state.attempts[0]?.settled).toMatchObject({ outcome: { kind: 'cancelled' }, confirmed: true });
  });

  it('of an attempt whose files were never all in place, what was read out is no candidate', () => {
    const history = at('provisioning').do(commands.settle, commands.quiesce, commands.collected, commands.stop);
    history.do(commands.release);
    const candidate = { digest: ids.candidate, files: [] };
    expect(history.ask({ ...commands['finish-settlement'], candidate }).ok).toBe(false);
    expect(history.do(commands['finish-settlement']).state.attempts[0]?.collection?.state).toBe('complete');
  });

  it('names what was not observed', () => {
    const history = at('running').do(commands['count-request'], commands.settle, {
      ...commands.quiesce,
      observed: false,
    });
    history.do(commands.collected, commands.stop, commands.release, commands['finish-settlement']);
    expect(history.state.attempts[0]?.settled?.unknown).toEqual(['quiesce', 'generation']);
  });
});

describe('outcomes', () => {
  const settledWith = (place: Place, ...more: Command[]): ReturnType<typeof at> =>
    at(place).do(...more, commands.quiesce, commands.collected, commands.stop, commands.release);
  const outcome = (history: SessionHistory, changed: boolean): string | undefined =>
    history.do({ ...commands['finish-settlement'], candidate: changed ? { digest: ids.candidate, files: [] } : null })
      .state.attempts[0]?.settled?.outcome.kind;

  it('finished with a change is a candidate, without one no_change', () => {
    expect(outcome(settledWith('running', commands.end), true)).toBe('candidate');
    expect(outcome(settledWith('running', commands.end), false)).toBe('no_change');
  });

  it.each([
    [{ kind: 'limit', which: 'requests', detail: '' }, 'limit'],
    [{ kind: 'model_fault', code: 'x', detail: '' }, 'model_fault'],
    [{ kind: 'resource', code: 'x', detail: '' }, 'resource'],
    [{ kind: 'transport', code: 'x', detail: '' }, 'transport'],
    [{ kind: 'infrastructure', code: 'x', detail: '' }, 'infrastructure'],
  ] as const)('%o gives %s and leaves nothing reviewable, changed or not', (end, kind) => {
    const history = settledWith('running', { kind: 'end', attempt, end });
    expect(outcome(history, true)).toBe(kind);
    expect(history.state.candidates[0]?.eligible).toBe(false);
  });

  it.each([
    ['cancel', 'cancelled'],
    ['window_close', 'cancelled'],
    ['ui_unreachable', 'cancelled'],
    ['kernel_restart', 'interrupted'],
    ['kernel_drain', 'interrupted'],
    ['lease_expired', 'interrupted'],
  ] as const)('%s ends as %s', (trigger, kind) => {
    expect(outcome(settledWith('running', { kind: 'settle', attempt, trigger }), true)).toBe(kind);
  });

  const collectedAs = (patch: Partial<typeof complete>): SessionHistory =>
    at('running').do(
      commands.end,
      commands.quiesce,
      { ...commands.collected, collection: { ...complete, ...patch } },
      commands.stop,
      commands.release,
    );

  it('a missing or differing audit is incomplete, never a candidate', () => {
    expect(outcome(collectedAs({ auditAgrees: false }), true)).toBe('incomplete');
    expect(outcome(collectedAs({ state: 'partial', reason: 'audit_missing' }), true)).toBe('incomplete');
  });
  it('bytes that differ from the audited writes, or files changed outside the scope, are an incident', () => {
    expect(outcome(collectedAs({ equalsAudit: false }), true)).toBe('incident');
    expect(outcome(collectedAs({ violations: ['tests/x.py'] }), true)).toBe('incident');
  });
  it('nothing collected after work is lost', () => {
    expect(outcome(collectedAs({ state: 'none', reason: 'container_gone', files: [] }), false)).toBe('lost');
  });
  it('a limit that is not in force is an incident', () => {
    const history = at('provisioning').do(
      { ...commands.limits, limits: [{ ...limit, inForce: false }] },
      { kind: 'end', attempt, end: { kind: 'infrastructure', code: 'limit-not-in-force', detail: '' } },
      commands.quiesce,
      { ...commands.collected, collection: { ...complete, state: 'none', files: [] } },
      commands.stop,
      commands.release,
    );
    expect(outcome(history, false)).toBe('incident');
  });
});

describe('verification and decision', () => {
  const verified = (
    result: 'passed' | 'failed' | 'incomplete',
    history = at('settled'),
    run = ids.run,
  ): SessionHistory =>
    history.do(
      { kind: 'request-verification', run, candidate: ids.candidate },
      { kind: 'start-verification', run },
      { kind: 'finish-verification', run, result, reasons: [], checks: [], scope: [] },
    );
  const acceptance = {
    kind: 'decide',
    decision: {
      kind: 'accept',
      candidate: ids.candidate,
      verification: ids.run,
      reviewer: 'r',
      channel: 'window',
      comment: '',
    },
  } as const satisfies Command;

  it('accepts only what has passed', () => {
    expect(at('settled').ask(acceptance)).toMatchObject({ ok: false, refusal: { code: 'NotVerified' } });
    expect(verified('failed').ask(acceptance)).toMatchObject({ ok: false, refusal: { code: 'NotVerified' } });
    expect(verified('incomplete').ask(acceptance)).toMatchObject({ ok: false, refusal: { code: 'NotVerified' } });
    expect(verified('passed').ask(acceptance).ok).toBe(true);
  });

  it('refuses by its name what is out of scope, also where a run was written down as passed', () => {
    const scope = [
      {
        path: 'src/usage.py' as RelPath,
        symbols: [{ name: 'f', exists: true }],
        outcome: 'outside' as const,
        reason: 'changed' as const,
        line: 3,
        found: 'x = 2',
        expected: 'x = 1',
      },
    ];
    const request: Command = { kind: 'request-verification', run: ids.run, candidate: ids.candidate };
    for (const result of ['failed', 'passed'] as const) {
      const history = at('settled').do(request, { kind: 'start-verification', run: ids.run });
      history.do({ kind: 'finish-verification', run: ids.run, result, reasons: [], checks: [], scope });
      expect(candidateView(history.state, ids.candidate)?.verifications[0]?.scope).toEqual(scope);
      expect(history.ask(acceptance)).toMatchObject({
        ok: false,
        refusal: { code: 'OutOfScope', message: expect.stringContaining('src/usage.py') as string },
      });
    }
  });

  it('a verification that was recorded before symbols could be named says nothing of them', () => {
    const request: Command = { kind: 'request-verification', run: ids.run, candidate: ids.candidate };
    const begun = at('settled').do(request, { kind: 'start-verification', run: ids.run });
    const data = { run: ids.run, result: 'passed', reasons: [], checks: [] } as const;
    const state = evolve(begun.state, { type: 'verification.done', data, at: 2000, seq: begun.state.seq + 1 });
    expect(candidateView(state, ids.candidate)?.verifications[0]?.scope).toEqual([]);
  });

  it('a candidate that passed once and failed once is flaky and cannot be accepted', () => {
    const history = verified('failed', verified('passed'), ids.run2);
    expect(history.ask(acceptance)).toMatchObject({ ok: false, refusal: { message: /flaky/ } });
  });

  describe('what a Kernel owes a candidate', () => {
    const owed = (history: SessionHistory): string =>
      recordedVerificationOf(history.state, history.state.candidates[0]!);
    const run = (n: number): typeof ids.run => `run_${String(n).padStart(20, '0')}` as typeof ids.run;
    const interruptedRun = (history: SessionHistory, n: number, place: 'queued' | 'running'): void => {
      history.do({ kind: 'request-verification', run: run(n), candidate: ids.candidate });
      if (place === 'running') history.do({ kind: 'start-verification', run: run(n) });
      expect(owed(history)).toBe(place);
      history.do({
        kind: 'finish-verification',
        run: run(n),
        result: 'incomplete',
        reasons: [interrupted],
        checks: [],
        scope: [],
      });
    };

    it('a verification follows a settled candidate, once', () => {
      const history = at('settled');
      expect(owed(history)).toBe('owed');
      expect(isOpen(history.state)).toBe(true);
      for (const result of ['passed', 'failed', 'incomplete'] as const) expect(owed(verified(result))).toBe('done');
      expect(isOpen(verified('incomplete').state)).toBe(false);
    });

    it('an interrupted one is begun again, at most so often in a row', () => {
      const history = at('settled');
      for (let n = 1; n < mostInterrupted; n += 1) {
        interruptedRun(history, n, n % 2 === 0 ? 'queued' : 'running');
        expect(owed(history)).toBe('owed');
      }
      interruptedRun(history, mostInterrupted, 'running');
      expect(owed(history)).toBe('given_up');
      expect(isOpen(history.state)).toBe(false);
      // A person asks; another interruption of that one is the first of a new row only after it was complete.
      verified('failed', history);
      expect(owed(history)).toBe('done');
      interruptedRun(history, mostInterrupted + 1, 'running');
      expect(owed(history)).toBe('owed');
    });

    it('a decided candidate, a closed session and a diagnostic are owed none', () => {
      const reject: Command = {
        kind: 'decide',
        decision: { ...acceptance.decision, kind: 'reject', verification: null },
      };
      expect(owed(at('settled').do(reject))).toBe('done');
      expect(owed(at('settled').do(commands.close))).toBe('done');
      const diagnostic = at('running').do(commands.settle, commands.quiesce, commands.collected, commands.stop);
      diagnostic.do(commands.release, {
        ...commands['finish-settlement'],
        candidate: { digest: ids.candidate, files: [] },
      });
      expect(owed(diagnostic)).toBe('done');
    });
  });

  it('accepts nothing while the same bytes are being verified again, nor in a closed session', () => {
    const again = verified('passed').do({ kind: 'request-verification', run: ids.run2, candidate: ids.candidate });
    expect(again.ask(acceptance)).toMatchObject({ ok: false, refusal: { code: 'NotVerified' } });
    again.do({ kind: 'start-verification', run: ids.run2 });
    expect(again.ask(acceptance)).toMatchObject({ ok: false, refusal: { code: 'NotVerified' } });
    again.do({ kind: 'finish-verification', run: ids.run2, result: 'passed', reasons: [], checks: [], scope: [] });
    expect(again.ask(acceptance).ok).toBe(true);
    expect(verified('passed').do(commands.close).ask(acceptance)).toMatchObject({ ok: false });
  });

  it('decides once', () => {
    const history = verified('passed').do(acceptance);
    expect(history.ask(acceptance)).toMatchObject({ ok: false, refusal: { code: 'AlreadyDecided' } });
    expect(history.ask(commands.queue).ok).toBe(false);
  });

  it('integrates only what was accepted, once, and undoes only what was integrated', () => {
    const id = 'int_0000000000000000aaaa' as never;
    const intend: Command = { kind: 'intend-integration', id, candidate: ids.candidate, unsaved: 'none' };
    expect(verified('passed').ask(intend).ok).toBe(false);
    const history = verified('passed').do(acceptance, intend);
    const observe = (
      state: 'integrated' | 'undone' | 'undo_refused' | 'partial',
    ): Extract<Command, { kind: 'observe-integration' }> => ({
      kind: 'observe-integration',
      id,
      state,
      reason: null,
      moved: [],
    });
    expect(history.ask(observe('undone'))).toMatchObject({ ok: false, refusal: { code: 'NotIntegrated' } });
    history.do(observe('integrated'));
    expect(history.ask(intend).ok).toBe(false);
    const again = { ...intend, id: 'int_0000000000000000bbbb' as never };
    history.do(observe('undo_refused'));
    expect(history.ask(again).ok).toBe(false);
    history.do(observe('undone'));
    expect(history.ask(again).ok).toBe(true);
    // Where files were left in between, their bytes decide whether it can be tried again, not the record.
    expect(history.do(again, { ...observe('partial'), id: again.id }).ask(intend).ok).toBe(true);
  });
});
