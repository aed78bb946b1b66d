import { beforeAll, describe, expect, it } from 'vitest';
import type { Command } from '../../../src/server/session/commands.ts';
import { engineStates, recordedStates, recoveryTable } from '../../../src/server/session/recovery-table.ts';
import {
  actionFor,
  ask,
  atRest,
  attempt,
  attemptOf,
  crash,
  kernelStep,
  keyOf,
  record,
  restart,
  start,
  type World,
} from '../../fixtures/attempt-world.ts';
import { artefact, complete, limit, receipt } from '../../fixtures/session.ts';

/** Kernels that may follow each other in the walk: a third one adds no new kind of state, only longer histories. */
const kernels = 3;

/** What the outside may do at any moment. */
const outside: Readonly<Record<string, (world: World) => World | null>> = {
  'the Kernel dies': (w) => (w.kernel === 'alive' ? crash(w) : null),
  'a Kernel starts': (w) => (w.kernel === 'dead' && w.epoch < kernels ? restart(w) : null),
  'the engine falls silent': (w) => (w.engineAnswers ? { ...w, engineAnswers: false } : null),
  'the engine answers again': (w) => (w.engineAnswers ? null : { ...w, engineAnswers: true }),
  'a late create arrives': (w) =>
    w.createInFlight && w.container === 'never'
      ? { ...w, createInFlight: false, container: 'created', creates: w.creates + 1 }
      : null,
  'somebody kills the container': (w) =>
    w.container === 'running' || w.container === 'paused' ? { ...w, container: 'stopped', channel: false } : null,
  'somebody removes the container': (w) =>
    w.container === 'stopped' || w.container === 'created' ? { ...w, container: 'gone', channel: false } : null,
  'somebody pauses the container': (w) =>
    w.container === 'running' ? { ...w, container: 'paused', channel: false } : null,
  'somebody starts the container again': (w) =>
    w.container === 'stopped' || w.container === 'paused' ? { ...w, container: 'running' } : null,
  'the lease expires': (w) => (w.leaseOver ? null : { ...w, leaseOver: true }),
  'a window closes': (w) =>
    w.kernel === 'alive' && w.seen === null && attemptOf(w).settling === null
      ? record(w, { kind: 'settle', attempt, trigger: 'window_close' })
      : null,
  'a person reconciles': (w) => {
    const { pending } = attemptOf(w);
    if (w.kernel === 'dead' || w.seen !== null || pending === null) return null;
    return record(w, {
      kind: 'reconcile',
      attempt,
      since: pending.since,
      by: 'r',
      channel: 'tty',
      why: 'the machine was reinstalled',
      saw: 'no_answer',
    });
  },
};

const worlds = new Map<string, { readonly world: World; readonly how: string; readonly from: string | null }>();
let steps = 0;

/** The way to a world, for the message of a failed property. */
function wayTo(key: string): string {
  const way: string[] = [];
  for (let at: string | null = key; at !== null;) {
    const found = worlds.get(at);
    if (found === undefined) break;
    way.unshift(found.how);
    at = found.from;
  }
  return way.join(' → ');
}

beforeAll(() => {
  const first = start();
  const open = [keyOf(first)];
  worlds.set(keyOf(first), { world: first, how: 'reserved', from: null });
  for (let key = open.pop(); key !== undefined; key = open.pop()) {
    const { world } = worlds.get(key)!;
    const reach = (how: string, after: World): void => {
      steps += 1;
      const to = keyOf(after);
      if (worlds.has(to)) return;
      worlds.set(to, { world: after, how, from: key });
      open.push(to);
    };
    reach(attemptOf(world).phase, kernelStep(world));
    for (const [how, act] of Object.entries(outside)) {
      const after = act(world);
      if (after !== null) reach(how, after);
    }
  }
});

function always(property: (world: World) => boolean): void {
  for (const [key, { world }] of worlds) {
    if (!property(world)) throw new Error(`broken after: ${wayTo(key)}\n${key}`);
  }
}

// Nothing here waits: only a very slow machine needs so long.
describe('every world that can come about', () => {
  it('was walked', () => {
    // Printed, so that a walk that has shrunk is seen.
    process.stdout.write(`walk: ${worlds.size} worlds, ${steps} steps\n`);
    expect(worlds.size).toBeGreaterThan(1_000);
    const phases = new Set([...worlds.values()].map(({ world }) => attemptOf(world).phase));
    expect(phases.size).toBe(9);
  });

  it('an attempt is never settled as stopped without a stop and an absence that were seen', () => {
    always((w) => {
      const { settled, container } = attemptOf(w);
      if (settled === null || !settled.confirmed || container === null) return true;
      return w.wasSeenStopped && w.wasSeenAbsent;
    });
  });

  it('without that, only a recorded action of a person settles it, and says so', () => {
    always((w) => {
      const { settled, supervised } = attemptOf(w);
      if (settled === null || settled.confirmed) return true;
      return supervised !== null && settled.unknown.includes('release');
    });
  });

  it('no evidence of bytes is recorded before they are durable', () => {
    always((w) => (attemptOf(w).collection?.files.length ?? 0) === 0 || w.bytesDurable);
  });

  it('at most one container is ever made for an attempt', () => {
    always((w) => w.creates <= 1);
  });

  it('nothing is provisioned or run by a Kernel that did not reserve it', () => {
    always((w) => {
      const a = attemptOf(w);
      if (w.kernel === 'dead' || a.epoch === w.epoch) return true;
      return a.phase !== 'reserved' && a.phase !== 'provisioning' && a.phase !== 'running';
    });
  });

  it('a candidate comes only from complete bytes of an attempt that finished', () => {
    always((w) => {
      const a = attemptOf(w);
      return (
        a.settled?.outcome.kind !== 'candidate' || (a.collection?.state === 'complete' && a.end?.kind === 'finished')
      );
    });
  });

  const commands: readonly Command[] = [
    { kind: 'provision', attempt, container: 'x' },
    { kind: 'container', attempt, state: 'running', engineId: 'c2' },
    { kind: 'limits', attempt, limits: [limit] },
    { kind: 'run', attempt, files: 1, bytes: 1 },
    { kind: 'count-request', attempt, n: 1, boundTokens: 1, proven: true },
    { kind: 'turn', attempt, n: 1, receipt, request: artefact, response: artefact },
    { kind: 'end', attempt, end: { kind: 'finished', message: '' } },
    { kind: 'settle', attempt, trigger: 'cancel' },
    { kind: 'step', attempt, step: 'stop', observed: true, facts: {} },
    { kind: 'step', attempt, step: 'release', observed: true, facts: {} },
    { kind: 'collected', attempt, collection: complete },
    { kind: 'pend', attempt, waitingFor: 'x' },
    { kind: 'unblock', attempt, seen: 'x' },
    { kind: 'reconcile', attempt, since: 1, by: 'r', channel: 'tty', why: 'x', saw: 'absent' },
    { kind: 'finish-settlement', attempt, candidate: null },
  ];

  it('a settled attempt is final: no command changes anything of it', () => {
    always((w) => {
      if (attemptOf(w).settled === null) return true;
      return commands.every((command) => {
        const decision = ask(w, command);
        return !decision.ok || decision.events.length === 0;
      });
    });
  });

  it('a Kernel of an earlier epoch changes nothing', () => {
    always((w) => {
      const a = attemptOf(w);
      return commands.every((command) => !ask(w, command, a.epoch - 1).ok);
    });
  });

  it('with a healthy engine every attempt comes to its end, and what is left of its container is swept', () => {
    const known = new Map<string, World>();
    always((w) => {
      const end = atRest(w, known);
      if (attemptOf(end).settled === null) return false;
      const left = end.container !== 'never' && end.container !== 'gone';
      return !left || actionFor(end) === 'sweep';
    });
  });
});

describe('the recovery table', () => {
  it('has exactly one action in every cell, and never removes, stops or collects without an answer', () => {
    for (const row of recordedStates) {
      expect(Object.keys(recoveryTable[row]).toSorted()).toEqual([...engineStates].toSorted());
      expect(['nothing', 'settle', 'wait']).toContain(recoveryTable[row].no_answer);
    }
  });
  it('removes what no record knows only where it has nothing to give, or what it had is on record', () => {
    const { no_record: unknown, salvaged } = recoveryTable;
    const alive = ['running', 'paused', 'unclear'] as const;
    for (const state of alive) expect(['salvage', 'report']).toContain(unknown[state]);
    expect([unknown.created, unknown.stopped]).toEqual(['sweep', 'sweep']);
    for (const state of alive) expect(salvaged[state]).toBe('sweep');
  });
});
