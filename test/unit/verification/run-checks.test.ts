// How a run of checks is recorded whose container went: an engine in memory that says of its end what it is told to.
import { expect, it } from 'vitest';
import type { FrozenCheck } from '../../../src/protocol/contract.ts';
import { sha256 } from '../../../src/protocol/hash.ts';
import { SandboxFault, type OomWord, type Sandbox, type SandboxService } from '../../../src/server/sandbox/port.ts';
import { judgeBaseline, judgeVerification } from '../../../src/server/verification/judge.ts';
import { runChecks, type CheckRun } from '../../../src/server/verification/run-checks.ts';

const check: FrozenCheck = {
  id: 'utc',
  kind: 'acceptance',
  argv: ['make', 'test'],
  baseline: 'fail',
  timeoutS: 60,
  showKiB: 16,
  captureKiB: 64,
  env: {},
};
const word: OomWord = { inside: 0, host: 1, events: 1, eventsWhole: true, flag: true, ended: true };

/** The container of one run: its supervisor goes while the check runs. */
function runThatLoses(fault: SandboxFault['code'], oom: OomWord): Promise<CheckRun> {
  const sandbox: Partial<Sandbox> = {
    limits: [],
    run: () => Promise.reject(new SandboxFault(fault, 'the stream ended')),
    detach: () => undefined,
  };
  const service: Partial<SandboxService> = {
    provision: () => Promise.resolve(sandbox as Sandbox),
    kill: () => Promise.resolve({ kind: 'stopped', exitCode: 137, oomKilled: oom.flag, finishedAt: null, oom }),
    remove: () => Promise.resolve({ kind: 'absent' }),
  };
  return runChecks({
    service: service as SandboxService,
    artefacts: { put: (bytes) => Promise.resolve({ sha256: sha256(bytes), size: bytes.byteLength }) },
    artefactOwner: 'contract:x',
    name: 'escrow-baseline-run_1',
    purpose: 'baseline',
    owner: 'run_1',
    session: null,
    epoch: 1,
    image: { reference: 'x', digest: 'sha256:x', executorDigest: sha256('x') },
    profile: 'bounded',
    files: [],
    bytesOf: () => Promise.reject(new Error('nothing is placed')),
    scratch: [],
    checks: [check],
    baseline: null,
    hooks: { onProvision: () => undefined, onStop: () => undefined, onAbsent: () => undefined },
    signal: new AbortController().signal,
  });
}

it.each(['channel', 'engine'] as const)(
  'a run whose container was ended by lack of memory is named so, not as the fault of the %s',
  async (fault) => {
    const run = await runThatLoses(fault, word);
    expect(run.fault).toEqual({ code: 'oom_killed', message: 'the stream ended' });
    const expected = ['oom_killed: the stream ended', 'files-unread', 'utc: not-run'];
    expect(judgeVerification([check], run, [])).toEqual({ result: 'incomplete', reasons: expected });
    expect(judgeBaseline([check], run)).toEqual({ result: 'incomplete', problems: expected });
  },
);

it('the fault stays what it was where a shortage ended only a command, or nothing tells of one (control)', async () => {
  expect((await runThatLoses('channel', { ...word, ended: false })).fault).toMatchObject({ code: 'channel' });
  expect((await runThatLoses('cancelled', word)).fault).toMatchObject({ code: 'cancelled' });
});
