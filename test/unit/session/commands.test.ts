// Model-based: any order of commands, also impossible, repeated, stale ones, over Kernels that die and clocks that jump.
import * as fc from 'fast-check';
import { expect, it } from 'vitest';
import type { AttemptId, ClientId, FencingToken } from '../../../src/protocol/primitives.ts';
import { leaseSlackMs } from '../../../src/server/session/decide.ts';
import type { Command } from '../../../src/server/session/commands.ts';
import { openAttempt, type AttemptState } from '../../../src/server/session/state.ts';
import { artefact, complete, controller, ids, limit, receipt, SessionHistory } from '../../fixtures/session.ts';

/** What a simple observer keeps beside the real state: numbers only, no rules of the decider. */
interface Model {
  reserved: number;
  clock: number;
  epoch: number;
  readonly settled: Map<AttemptId, string>;
  lastToken: number;
  /** When the open attempt's lease ends, by this observer's own sum. */
  leaseUntil: number | null;
}
type Real = SessionHistory;

const attempts = ['a', 'b', 'c', 'd'].map((x) => `att_0000000000000000${x.repeat(4)}` as AttemptId);
const clients = ['window-aaaaaaaa', 'window-bbbbbbbb'] as ClientId[];
const wallMs = 600_000;

const settledText = (a: AttemptState): string => JSON.stringify(a);

function check(model: Model, real: Real): void {
  const { state } = real;
  // The ledger: what was counted stays counted, and never more than is allowed.
  expect(real.events.filter((e) => e.type === 'attempt.reserved')).toHaveLength(model.reserved);
  expect(model.reserved).toBeLessThanOrEqual(real.ledger().allowed);
  expect(state.attempts.filter((a) => a.phase !== 'settled').length).toBeLessThanOrEqual(1);
  expect(state.token).toBeGreaterThanOrEqual(model.lastToken);
  model.lastToken = state.token;
  for (const a of state.attempts) {
    const before = model.settled.get(a.id);
    if (before !== undefined) expect(settledText(a)).toBe(before);
    if (a.settled === null) continue;
    model.settled.set(a.id, settledText(a));
    if (a.settled.confirmed && a.container !== null) expect(a.stopped && a.released).toBe(true);
    if (!a.settled.confirmed) expect(a.supervised).not.toBeNull();
    if (a.settled.outcome.kind === 'candidate') expect(a.collection?.state).toBe('complete');
    // A request without an answer is named as unknown, never answered later.
    if (a.requestOpen) expect(a.settled.unknown).toContain('generation');
  }
  const requests = real.events.flatMap((e) => (e.type === 'attempt.request' ? [`${e.data.attempt}:${e.data.n}`] : []));
  expect(new Set(requests).size).toBe(requests.length);
}

/** Sends one command; the decider may refuse it, and then nothing may have changed. */
class Send implements fc.Command<Model, Real> {
  readonly command: Command;
  readonly epochsBehind: number;
  readonly twice: boolean;
  constructor(command: Command, epochsBehind: number, twice: boolean) {
    this.command = command;
    this.epochsBehind = epochsBehind;
    this.twice = twice;
  }
  check = (): boolean => true;
  run(model: Model, real: Real): void {
    for (let times = this.twice ? 2 : 1; times > 0; times -= 1) this.#once(model, real);
  }
  #once(model: Model, real: Real): void {
    const before = real.state;
    const open = openAttempt(before);
    real.now.epoch = model.epoch - this.epochsBehind;
    const decision = real.ask(this.command);
    expect(real.ask(this.command)).toEqual(decision);
    expect(real.state).toBe(before);
    if (decision.ok) {
      real.do(this.command);
      if (this.command.kind === 'reserve' && real.state.attempts.length > before.attempts.length) {
        model.reserved += 1;
        model.leaseUntil = model.clock + wallMs + leaseSlackMs;
      }
    } else {
      expect(decision.refusal.next).not.toBe('');
    }
    const changed = real.state !== before;
    // A Kernel before the one that reserved changes nothing.
    if (before.attempts.some((a) => a.epoch > real.now.epoch)) expect(changed).toBe(false);
    // Work is accepted by the reserving Kernel and before the lease's end, and never else.
    const works = this.command.kind === 'count-request' || this.command.kind === 'turn' || this.command.kind === 'run';
    if (works && decision.ok) {
      expect(open?.epoch).toBe(real.now.epoch);
      expect(model.clock).toBeLessThan(model.leaseUntil ?? 0);
    }
    if (this.command.kind === 'queue' && this.command.token !== null && decision.ok) {
      expect(this.command.token).toBe(before.token);
    }
    real.now.epoch = model.epoch;
    check(model, real);
  }
  toString = (): string =>
    `${JSON.stringify(this.command)}${this.epochsBehind > 0 ? ` from ${this.epochsBehind} epochs ago` : ''}${this.twice ? ' twice' : ''}`;
}

/** The Kernel dies and another takes over: a higher epoch, and a clock that starts anywhere. */
class Restart implements fc.Command<Model, Real> {
  readonly clock: number;
  constructor(clock: number) {
    this.clock = clock;
  }
  check = (): boolean => true;
  run(model: Model, real: Real): void {
    model.epoch += 1;
    model.clock = this.clock;
    real.now.epoch = model.epoch;
    real.now.mono = this.clock;
    check(model, real);
  }
  toString = (): string => `restart at ${this.clock}`;
}

/** The clock goes on, to anywhere, also exactly to the lease's end and right before it. */
class Jump implements fc.Command<Model, Real> {
  readonly to: (model: Model) => number;
  readonly name: string;
  constructor(name: string, to: (model: Model) => number) {
    this.name = name;
    this.to = to;
  }
  check = (): boolean => true;
  run(model: Model, real: Real): void {
    model.clock = Math.max(0, this.to(model));
    real.now.mono = model.clock;
  }
  toString = (): string => `clock: ${this.name}`;
}

const attempt = fc.constantFrom(...attempts);
const small = fc.integer({ min: 1, max: 4 });
const command: fc.Arbitrary<Command> = fc.oneof(
  { weight: 3, arbitrary: attempt.map((a): Command => ({ kind: 'queue', attempt: a, feedback: null, token: null })) },
  fc.tuple(attempt, small).map(([a, t]): Command => ({
    kind: 'queue',
    attempt: a,
    feedback: null,
    token: t as FencingToken,
  })),
  { weight: 3, arbitrary: fc.constant<Command>({ kind: 'reserve', holder: 'k' }) },
  fc.constantFrom<Command>(
    { kind: 'unqueue', reason: 'x' },
    { kind: 'park', reason: 'x' },
    { kind: 'unpark' },
    { kind: 'close', reason: 'x' },
  ),
  fc
    .tuple(fc.constantFrom(...clients), fc.constantFrom('attach' as const, 'take-over' as const))
    .map(([clientId, how]): Command => ({ kind: 'grant-control', controller: { ...controller, clientId }, how })),
  fc.constantFrom(...clients).map((clientId): Command => ({ kind: 'release-control', clientId, reason: 'x' })),
  {
    weight: 20,
    arbitrary: fc
      .tuple(attempt, small)
      .chain(([a, n]) =>
        fc.constantFrom<Command>(
          { kind: 'provision', attempt: a, container: 'c' },
          { kind: 'container', attempt: a, state: 'created', engineId: 'e1' },
          { kind: 'limits', attempt: a, limits: [limit] },
          { kind: 'run', attempt: a, files: 1, bytes: 1 },
          { kind: 'count-request', attempt: a, n, boundTokens: 1, proven: true },
          { kind: 'turn', attempt: a, n, receipt, request: artefact, response: artefact },
          { kind: 'end', attempt: a, end: { kind: 'finished', message: '' } },
          { kind: 'settle', attempt: a, trigger: 'cancel' },
          { kind: 'step', attempt: a, step: 'quiesce', observed: true, facts: {} },
          { kind: 'step', attempt: a, step: 'stop', observed: n > 1, facts: {} },
          { kind: 'step', attempt: a, step: 'release', observed: n > 1, facts: {} },
          { kind: 'collected', attempt: a, collection: complete },
          { kind: 'pend', attempt: a, waitingFor: 'x' },
          { kind: 'unblock', attempt: a, seen: 'x' },
          { kind: 'reconcile', attempt: a, since: 1000 + n, by: 'r', channel: 'tty', why: 'x', saw: 'absent' },
          { kind: 'finish-settlement', attempt: a, candidate: null },
        ),
      ),
  },
);

/** The usual way through an attempt, so that deep states are reached often, with anything in between. */
const usual = (a: AttemptId): readonly Command[] => [
  { kind: 'queue', attempt: a, feedback: null, token: null },
  { kind: 'reserve', holder: 'k' },
  { kind: 'provision', attempt: a, container: 'c' },
  { kind: 'container', attempt: a, state: 'created', engineId: 'e1' },
  { kind: 'limits', attempt: a, limits: [limit] },
  { kind: 'run', attempt: a, files: 1, bytes: 1 },
  { kind: 'count-request', attempt: a, n: 1, boundTokens: 1, proven: true },
  { kind: 'turn', attempt: a, n: 1, receipt, request: artefact, response: artefact },
  { kind: 'end', attempt: a, end: { kind: 'finished', message: '' } },
  { kind: 'step', attempt: a, step: 'quiesce', observed: true, facts: {} },
  { kind: 'collected', attempt: a, collection: complete },
  { kind: 'step', attempt: a, step: 'stop', observed: true, facts: {} },
  { kind: 'step', attempt: a, step: 'release', observed: true, facts: {} },
  { kind: 'finish-settlement', attempt: a, candidate: { digest: ids.candidate, files: [] } },
];
const script = attempts.flatMap(usual);
/** One step of the usual way, by its place. The shrinker drops steps that don't matter. */
const along = fc.nat({ max: script.length - 1 }).map((i) => script[i]!);

const anyStep: fc.Arbitrary<fc.Command<Model, Real>> = fc.oneof(
  {
    weight: 12,
    arbitrary: fc
      .tuple(fc.oneof(command, along), fc.constantFrom(0, 0, 0, 0, 1, 2), fc.constantFrom(false, false, true))
      .map(([c, behind, twice]) => new Send(c, behind, twice)),
  },
  { weight: 1, arbitrary: fc.integer({ min: 0, max: 2_000_000 }).map((to) => new Restart(to)) },
  fc.constantFrom(
    new Jump('right before the end of the lease', (m) => (m.leaseUntil ?? 1) - 1),
    new Jump('the end of the lease', (m) => m.leaseUntil ?? 0),
    new Jump('a day on', (m) => m.clock + 86_400_000),
  ),
);

const fresh = (): { model: Model; real: Real } => ({
  model: { reserved: 0, clock: 0, epoch: 1, settled: new Map(), lastToken: 0, leaseUntil: null },
  real: new SessionHistory(),
});

it('no sequence of commands, restarts and clocks breaks what must always hold', () => {
  const commands = fc.commands([anyStep], { maxCommands: 80, size: 'max' });
  fc.assert(
    fc.property(commands, (steps) => {
      fc.modelRun(fresh, steps);
    }),
    { numRuns: 300 },
  );
});

it('nor does one that follows the usual way with something thrown in between', () => {
  const between = fc.array(fc.tuple(fc.nat({ max: script.length }), anyStep), { maxLength: 8 });
  const reached = new Set<string>();
  fc.assert(
    fc.property(between, (extra) => {
      const { model, real } = fresh();
      for (const [i, usualStep] of script.entries()) {
        for (const [, step] of extra.filter(([place]) => place === i)) step.run(model, real);
        new Send(usualStep, 0, false).run(model, real);
        for (const a of real.state.attempts) reached.add(a.phase);
      }
    }),
    { numRuns: 300 },
  );
  expect(reached.size).toBeGreaterThanOrEqual(8);
});

it('found by the model: an attempt that was counted cannot be queued again under its id', () => {
  const [first] = attempts;
  const { real } = fresh();
  for (const step of usual(first!)) real.do(step);
  expect(real.ask({ kind: 'queue', attempt: first!, feedback: null, token: null })).toMatchObject({ ok: false });
});

it('found by the model: no candidate without collected bytes', () => {
  const { real } = fresh();
  const [queue, reserve] = usual(ids.attempt);
  real.do(queue!, reserve!, { kind: 'settle', attempt: ids.attempt, trigger: 'cancel' });
  const candidate = { digest: ids.candidate, files: [] };
  expect(real.ask({ kind: 'finish-settlement', attempt: ids.attempt, candidate })).toMatchObject({
    ok: false,
  });
});
