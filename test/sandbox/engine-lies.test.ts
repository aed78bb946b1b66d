// Engines that lie about the end of a container, lose their answers, stall or are gone: a stop counts when it was seen.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { RelPath } from '../../src/protocol/primitives.ts';
import type { Sandbox, SandboxSpec } from '../../src/server/sandbox/port.ts';
import {
  engineBetween,
  type Behaviour,
  type EngineBetween,
  type Misdeed,
} from '../fixtures/bad-peers/engine-between.ts';
import {
  contradictsItself,
  execEndsWith,
  failsInspections,
  losesTheAcknowledgement,
  refusesToKill,
  refusesToRemove,
  saysKilledAndIsNot,
  saysRunningAndIsGone,
  saysStoppedWithAProcess,
  stallsAtKill,
} from '../fixtures/bad-peers/engine-that-lies.ts';
import { collect, collectByExec } from '../fixtures/collected.ts';
import { command, file, pathOf, python, sandboxBench, type SandboxBench } from '../fixtures/sandbox.ts';

let bench: SandboxBench;
beforeAll(async () => {
  bench = await sandboxBench();
});
afterAll(() => bench.dispose());

const path: RelPath = pathOf('src/a.py');

interface Through {
  readonly engine: EngineBetween;
  readonly sandbox: Sandbox;
  readonly spec: SandboxSpec;
  readonly bench: SandboxBench;
  /** The same service, which waits only so long for what a lying engine never shows. */
  readonly impatient: SandboxBench;
}

/** A live sandbox whose engine is in between; everything of it is gone afterwards. */
async function through(use: (parts: Through) => Promise<void>, behaviour?: Behaviour): Promise<void> {
  const engine = await engineBetween();
  try {
    if (behaviour !== undefined) engine.behave(behaviour);
    const parts = { engineHost: engine.address, homeId: bench.homeId };
    const own = await sandboxBench(parts);
    const impatient = await sandboxBench({ ...parts, confirmMs: 1_500 });
    const spec = own.spec({
      files: [file('src/a.py', 'old\n')],
      writable: [path],
      commands: [command('true', ['true']), python('sleep', 'import time; time.sleep(60)')],
    });
    const sandbox = await own.service.provision(spec, async () => {});
    try {
      await use({ engine, sandbox, spec, bench: own, impatient });
    } finally {
      sandbox.detach();
      engine.honest();
      await bench.service.kill(sandbox.engineId);
      await bench.service.remove(sandbox.engineId);
    }
  } finally {
    await engine.close();
  }
}

const running = async (id: string): Promise<boolean | undefined> => (await bench.engine.inspect(id))?.running;

describe('[52] an engine that tells no events, or wrong ones', () => {
  const streams: Record<string, Misdeed> = {
    'never answers': { kind: 'never-answer' },
    refuses: { kind: 'answer', status: 500, body: { message: 'made up' } },
    'answers something else': { kind: 'answer', status: 200, body: [{ Action: 'oom' }] },
    'is over at once': { kind: 'answer', status: 200 },
  };
  it.each(Object.entries(streams))('holds up neither an attempt nor its end: one that %s', (_, misdeed) =>
    through(
      async ({ sandbox, bench: own }) => {
        expect((await sandbox.run('true')).end).toEqual({ kind: 'exit', code: 0 });
        sandbox.detach();
        expect(await own.service.kill(sandbox.engineId)).toMatchObject({
          kind: 'stopped',
          oom: { events: null, eventsWhole: false, flag: false, ended: false },
        });
        expect(await own.service.remove(sandbox.engineId)).toEqual({ kind: 'absent' });
      },
      ({ path: where }) => (where === '/events' ? misdeed : undefined),
    ),
  );
});

describe.concurrent('[52] a stop', () => {
  it('[52=] is confirmed by an engine that tells the truth (control)', () =>
    through(async ({ sandbox, bench: own }) => {
      expect(await own.service.kill(sandbox.engineId)).toMatchObject({ kind: 'stopped', exitCode: 137 });
      expect(await own.service.remove(sandbox.engineId)).toEqual({ kind: 'absent' });
    }));

  const lies: Record<string, Behaviour> = {
    'says killed, and it runs': saysKilledAndIsNot,
    'says exited, and names a process': saysStoppedWithAProcess,
    'says running and not running': contradictsItself,
    'answers 500 to every look': failsInspections,
  };
  it.each(Object.entries(lies))('is not believed when the engine %s', (_, lie) =>
    through(async ({ engine, sandbox, bench: own, impatient }) => {
      engine.behave(lie);
      expect(await impatient.service.kill(sandbox.engineId)).toMatchObject({ kind: 'unconfirmed' });
      expect((await impatient.service.remove(sandbox.engineId)).kind).not.toBe('absent');
      expect(await running(sandbox.engineId)).toBe(true);
      // Resolved by looking again, once the engine tells the truth.
      engine.honest();
      expect(await own.service.kill(sandbox.engineId)).toMatchObject({ kind: 'stopped' });
      expect(await own.service.remove(sandbox.engineId)).toEqual({ kind: 'absent' });
    }),
  );

  it('is not confirmed by an engine that says "running" of what is gone, until it says otherwise', () =>
    through(async ({ engine, sandbox, bench: own, impatient }) => {
      let recorded: unknown;
      engine.behave(({ method, path: where }) =>
        method === 'GET' && where.includes(sandbox.engineId)
          ? { kind: 'change-answer', change: (answer: never) => (recorded = answer) }
          : undefined,
      );
      expect((await impatient.service.remove(sandbox.engineId)).kind).toBe('present');
      expect(recorded).toMatchObject({ State: { Running: true } });
      await bench.service.kill(sandbox.engineId);
      await bench.service.remove(sandbox.engineId);
      engine.behave(saysRunningAndIsGone(recorded));
      expect(await impatient.service.kill(sandbox.engineId)).toMatchObject({
        kind: 'unconfirmed',
        reason: expect.stringContaining('still running'),
      });
      engine.honest();
      expect(await own.service.kill(sandbox.engineId)).toEqual({ kind: 'absent' });
    }));

  it.each([['loses every acknowledgement', losesTheAcknowledgement]])(
    'is confirmed by a look where the engine %s',
    (_, lie) =>
      through(async ({ engine, sandbox, bench: own }) => {
        engine.behave(lie);
        expect(await own.service.kill(sandbox.engineId)).toMatchObject({ kind: 'stopped' });
        expect(await own.service.remove(sandbox.engineId)).toEqual({ kind: 'absent' });
      }),
  );

  it.each([409, 500, 304])('that is refused with %i is said to be unconfirmed, with the reason', (status) =>
    through(async ({ engine, sandbox, impatient }) => {
      engine.behave(refusesToKill(status));
      const seen = await impatient.service.kill(sandbox.engineId);
      expect(seen).toMatchObject({ kind: 'unconfirmed', reason: expect.stringContaining('still running') });
      expect(await running(sandbox.engineId)).toBe(true);
    }),
  );

  it('whose container the engine will not remove leaves it present, and says so', () =>
    through(async ({ engine, sandbox, bench: own, impatient }) => {
      engine.behave(refusesToRemove(409));
      await own.service.kill(sandbox.engineId);
      expect(await impatient.service.remove(sandbox.engineId)).toMatchObject({
        kind: 'present',
        reason: expect.stringContaining('in progress'),
      });
    }));

  it('that the engine never answers ends in time, unconfirmed', () =>
    through(async ({ engine, sandbox, impatient }) => {
      engine.behave(stallsAtKill);
      const started = performance.now();
      expect(await impatient.service.kill(sandbox.engineId)).toMatchObject({ kind: 'unconfirmed' });
      expect(performance.now() - started).toBeLessThan(60_000);
    }));
});

describe.concurrent('[52] the fallback reader', () => {
  it.each([
    [126, 'could not be executed'],
    [137, 'was killed'],
    [null, 'no exit code'],
  ])('that ends early with %s says what that means', (code, words) =>
    through(async ({ engine, sandbox, spec, bench: own }) => {
      sandbox.detach();
      // The reader's own file is gone: it ends before it has read anything.
      engine.behave((call) => {
        if (call.method === 'POST' && /^\/containers\/[^/]+\/exec$/.test(call.path)) {
          const body = JSON.parse(call.body.toString('utf8')) as { Cmd: string[] };
          return { kind: 'send-instead', body: { ...body, Cmd: [body.Cmd[0], '-e', ''] } };
        }
        return execEndsWith(code)(call);
      });
      const collection = await collectByExec(own.service, spec, sandbox.engineId, { entries: 0, head: null });
      expect(collection).toMatchObject({ state: 'none', reason: expect.stringContaining(words) });
    }),
  );
});

describe('[33+] an engine that is restarted in mid-command', () => {
  it('cuts the channel; the container is taken up again, and what nobody saw is said', () =>
    through(async ({ engine, sandbox, spec, bench: own }) => {
      const run = sandbox.run('sleep');
      run.catch(() => {});
      // Its start is on the wire once a later request has been answered.
      await sandbox.read(path, 'agent');
      await engine.goAway();
      expect(await sandbox.ended).toEqual({ kind: 'stream-ended' });
      await expect(run).rejects.toMatchObject({ code: 'channel' });
      expect(await own.service.kill(sandbox.engineId)).toMatchObject({ kind: 'unconfirmed' });
      expect(
        await own.service.reattach(spec, sandbox.engineId, 2, sandbox.witness).catch((e: Error) => e),
      ).toMatchObject({
        code: 'engine',
      });
      await engine.comeBack();
      const again = await own.service.reattach(spec, sandbox.engineId, 2, sandbox.witness);
      const collection = await collect(again!);
      // How the command ended was not witnessed: the bytes are there, and the record says what nobody vouches for.
      expect(collection).toMatchObject({
        state: 'partial',
        reason: expect.stringMatching(/^audit-beyond-record: [12]$/),
        equalsAudit: true,
        violations: [],
      });
      expect(collection?.files).toHaveLength(1);
      again?.detach();
    }));
});
