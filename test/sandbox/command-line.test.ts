// The built command line on the main job: real Kernel, real container engine, rehearsal scripts.
import { spawn, type ChildProcess } from 'node:child_process';
import { readFile, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { escrow, type CliResult } from '../../scripts/lib/cli.ts';
import { engineHere } from '../../scripts/lib/engine-here.ts';
import { dist } from '../../scripts/lib/root.ts';
import type { KernelStatus } from '../../src/protocol/status.ts';
import type { SessionView } from '../../src/protocol/views.ts';
import { exampleRepo, type ExampleRepo } from '../fixtures/example-repo.ts';
import { turns, writeScript } from '../fixtures/journey.ts';
import { endKernel, makeHome } from '../fixtures/kernel.ts';
import { ensureSandboxImage } from '../fixtures/sandbox.ts';

const contract = 'utc-timestamp.contract.jsonc';

interface Failed {
  readonly error: { readonly code: string; readonly next: string };
}

describe('the command line', () => {
  let home: string;
  let repo: ExampleRepo;
  let instance: string;
  const cli = (...args: readonly string[]): Promise<CliResult> => escrow(args, { cwd: repo.root, home });
  const usage = (): Promise<string> => readFile(path.join(repo.root, 'src', 'usage.py'), 'utf8');

  beforeAll(ensureSandboxImage);
  beforeEach(async () => {
    home = await makeHome();
    repo = await exampleRepo();
    instance = ((await cli('kernel', 'start')).value as KernelStatus).instanceId;
  });
  afterEach(async () => {
    await endKernel(home);
    expect(await engineHere().list([`escrow.instance=${instance}`])).toEqual([]);
    await rm(home, { recursive: true, force: true });
    await repo.dispose();
  });

  it('goes from contract to accepted bytes, and back', async () => {
    const before = await usage();
    // Without a baseline nothing starts.
    const early = await cli('session', 'start', contract, '--engine', 'rehearsal', '--model', 'utc-timestamp');
    expect(early).toMatchObject({ code: 4, value: { error: { code: 'BaselineMissing' } } });
    expect(await cli('contract', 'baseline', contract)).toMatchObject({
      code: 0,
      value: { baseline: { result: 'discriminates' } },
    });

    const started = await cli('session', 'start', contract, '--engine', 'rehearsal', '--model', 'utc-timestamp');
    expect(started.code).toBe(0);
    const session = started.value as SessionView;
    expect(session.attempts.at(-1)).toMatchObject({ outcome: { kind: 'candidate' }, settlement: { confirmed: true } });
    const candidate = session.candidates[0];
    expect(candidate?.verdict).toBe('passed');
    if (candidate === undefined) throw new Error('no candidate');

    const diff = (await cli('candidate', 'diff', 'last')).value as { files: { path: string; diff: string }[] };
    expect(diff.files.map((file) => file.path)).toEqual(['src/usage.py']);
    expect(diff.files[0]?.diff).toContain('+        moment = moment.replace(tzinfo=timezone.utc)');

    // The decision names the bytes; what is not their digest is not accepted.
    expect((await cli('candidate', 'accept', 'last', '0'.repeat(64), '--reviewer', 'ci')).code).toBe(2);
    expect(await usage()).toBe(before);
    const accepted = await cli(
      'candidate',
      'accept',
      'last',
      candidate.digest,
      '--reviewer',
      'ci',
      '--comment',
      'right',
    );
    expect(accepted).toMatchObject({
      code: 0,
      value: {
        integration: { state: 'integrated', files: ['src/usage.py'] },
        session: {
          candidates: [{ decision: { kind: 'accept', reviewer: 'ci', channel: 'script', comment: 'right' } }],
        },
      },
    });
    expect(await usage()).toContain('tzinfo=timezone.utc');
    // Again: refused, whatever stands in the way first.
    expect((await cli('candidate', 'accept', 'last', candidate.digest, '--reviewer', 'ci')).code).toBe(4);

    expect(await cli('candidate', 'undo', 'last')).toMatchObject({
      code: 0,
      value: { integration: { state: 'undone' } },
    });
    expect(await usage()).toBe(before);

    // A changed working tree is not written to.
    await writeFile(path.join(repo.root, 'src', 'usage.py'), `${before}# mine\n`);
    expect(await cli('candidate', 'integrate', 'last')).toMatchObject({
      code: 4,
      value: { error: { code: 'BaseChanged' } },
    });
    expect(await usage()).toBe(`${before}# mine\n`);
  });

  it('ends with 1 when the candidate does not pass, and refuses to accept it', async () => {
    expect((await cli('contract', 'baseline', contract)).code).toBe(0);
    const script = await writeScript(home, 'wrong', [turns.view, turns.wrongEdit, turns.finish]);
    const started = await cli('session', 'start', contract, '--engine', 'rehearsal', '--model', script);
    expect(started.code).toBe(1);
    const candidate = (started.value as SessionView).candidates[0];
    expect(candidate?.verdict).toBe('failed');
    const accepted = await cli('candidate', 'accept', 'last', candidate?.digest ?? '', '--reviewer', 'ci');
    expect(accepted).toMatchObject({ code: 4, value: { error: { code: 'NotVerified' } } });
    const rejected = await cli(
      'candidate',
      'reject',
      'last',
      candidate?.digest ?? '',
      '--reviewer',
      'ci',
      '--comment',
      'wrong',
    );
    expect(rejected).toMatchObject({
      code: 0,
      value: { candidates: [{ decision: { kind: 'reject', comment: 'wrong' } }] },
    });
  });

  it('refuses what cannot be used as a model, and leaves nothing half-done', async () => {
    await cli('kernel', 'stop');
    // Port 1 of loopback: nothing listens there.
    await writeFile(path.join(home, 'settings.json'), JSON.stringify({ inferenceHost: 'http://127.0.0.1:1' }));
    expect((await cli('contract', 'baseline', contract)).code).toBe(0);
    const start = async (...more: readonly string[]): Promise<readonly [number | null, string]> => {
      const result = await cli('session', 'start', contract, ...more);
      expect((result.value as Failed).error.next).not.toBe('');
      return [result.code, (result.value as Failed).error.code];
    };
    expect(await start('--model', 'gpt-oss:120b-cloud')).toEqual([4, 'CloudModelRefused']);
    expect(await start('--model', 'qwen3:4b')).toEqual([5, 'InferenceUnavailable']);
    expect(await start('--engine', 'rehearsal', '--model', 'nobody')).toEqual([2, 'ModelNotFound']);
    expect(await cli('session', 'list')).toMatchObject({ value: { sessions: [] } });
  });

  /** A watched session whose model holds still; resolves once the attempt runs. */
  async function holding(): Promise<{ readonly child: ChildProcess; readonly ended: Promise<number | null> }> {
    expect((await cli('contract', 'baseline', contract)).code).toBe(0);
    const never = path.join(home, 'never');
    const script = await writeScript(home, 'hold', [turns.view, { ...turns.edit, holdUntilFile: never }, turns.finish]);
    const child = spawn(
      process.execPath,
      [path.join(dist, 'cli.cjs'), 'session', 'start', contract, '--engine', 'rehearsal', '--model', script, '--json'],
      { cwd: repo.root, env: { ...process.env, ESCROW_HOME: home }, stdio: ['ignore', 'pipe', 'ignore'] },
    );
    const ended = new Promise<number | null>((resolve) => child.on('close', resolve));
    for await (const line of createInterface({ input: child.stdout ?? process.stdin })) {
      const { event } = JSON.parse(line) as { readonly event?: { readonly phase: string | null } };
      if (event?.phase === 'running') break;
    }
    child.stdout?.resume();
    return { child, ended };
  }

  it('settles at Ctrl-C before it ends', async () => {
    const { child, ended } = await holding();
    child.kill('SIGINT');
    expect(await ended).toBe(130);
    const shown = (await cli('session', 'show', 'last')).value as SessionView;
    expect(shown.attempts.at(-1)).toMatchObject({
      outcome: { kind: 'cancelled' },
      settlement: { trigger: 'cancel', confirmed: true },
    });
  });

  it('is settled by the Kernel when it is killed', async () => {
    const { child, ended } = await holding();
    child.kill('SIGKILL');
    await ended;
    // Watching ends when the session is at rest.
    const shown = (await cli('session', 'show', 'last', '--watch')).value as SessionView;
    expect(shown.attempts.at(-1)).toMatchObject({ settlement: { confirmed: true } });
    expect(shown.attempts.at(-1)?.outcome?.kind).not.toBe('candidate');
  });

  it('is a refused observer of what another process controls, unless it takes over', async () => {
    const { ended } = await holding();
    const refused = await cli('session', 'cancel', 'last');
    expect(refused.code).toBe(4);
    expect(refused.value).toMatchObject({ error: { code: 'NotController' } });
    const cancelled = await cli('session', 'cancel', 'last', '--take-over');
    expect(cancelled).toMatchObject({ code: 0, value: { attempts: [{ outcome: { kind: 'cancelled' } }] } });
    expect(await ended).toBe(1);
  });
});
