// The built command line against the built Kernel (npm run build). No container engine is needed here.
import { execFileSync, spawn } from 'node:child_process';
import { chmod, mkdir, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { escrow, type CliResult } from '../../../scripts/lib/cli.ts';
import { dist } from '../../../scripts/lib/root.ts';
import { processStart } from '../../../src/protocol/process-identity.ts';
import { exampleRepo, type ExampleRepo } from '../../fixtures/example-repo.ts';
import { endKernel, eventually, makeHome } from '../../fixtures/kernel.ts';

const contractFile = 'utc-timestamp.contract.jsonc';

describe('the built command line and Kernel', () => {
  let home: string;
  let repo: ExampleRepo;
  const cli = (...args: readonly string[]): Promise<CliResult> => escrow(args, { cwd: repo.root, home });
  const errorOf = (result: CliResult): { code: string; next: string; message: string } =>
    (result.value as { error: { code: string; next: string; message: string } }).error;

  beforeEach(async () => {
    home = await makeHome();
    repo = await exampleRepo();
  });
  afterEach(async () => {
    await endKernel(home);
    await rm(home, { recursive: true, force: true });
    await repo.dispose();
  });

  it('starts one Kernel, finds it again, and stops it', async () => {
    expect((await cli('kernel', 'status')).code).toBe(3);
    const pids = await Promise.all(
      Array.from({ length: 4 }, async () => {
        const started = await cli('kernel', 'start');
        expect(started.code).toBe(0);
        return (started.value as { pid: number }).pid;
      }),
    );
    expect(new Set(pids).size).toBe(1);
    expect(await cli('kernel', 'status')).toMatchObject({ code: 0, value: { pid: pids[0], home } });
    expect(await cli('kernel', 'stop')).toMatchObject({ code: 0, value: { stopped: true, pid: pids[0] } });
    expect((await cli('kernel', 'status')).code).toBe(3);
    const log = await cli('kernel', 'log', '--lines', '500');
    expect((log.value as { lines: string[] }).lines.some((line) => line.includes('draining'))).toBe(true);
  });

  it('starts another Kernel, one epoch higher, after the first was killed', async () => {
    const { pid } = (await cli('kernel', 'start')).value as { pid: number };
    process.kill(pid, 'SIGKILL');
    const second = await cli('kernel', 'start');
    expect(second.code).toBe(0);
    expect((second.value as { pid: number }).pid).not.toBe(pid);
    expect(second.value).toMatchObject({ epoch: 2 });
  });

  it('writes a new contract that says by itself what is missing, and writes over none', async () => {
    const made = await cli('contract', 'new', '--title', 'Whole cents', '--writable', 'src/usage.py');
    const file = path.join(repo.root, 'whole-cents.contract.jsonc');
    expect(made).toMatchObject({ code: 0, value: { path: file, check: ['python3', '-m', 'unittest', '-v'] } });
    const checked = await cli('contract', 'check', file);
    expect(checked).toMatchObject({
      code: 1,
      value: { errors: 1, diagnostics: [{ message: '"instruction" is empty.' }] },
    });
    expect(await cli('contract', 'new', file)).toMatchObject({ code: 1, value: { path: file, written: false } });
    expect((await cli('contract', 'new', path.join(home, 'nowhere', 'x.contract.jsonc'))).code).toBe(2);
    expect(errorOf(await escrow(['contract', 'new'], { cwd: home, home }))).toMatchObject({
      code: 'NotAGitRepository',
    });
    const whole = ['--instruction', 'Keep cents.', '--check', 'python3 -m unittest tests.test_usage'];
    await cli('contract', 'new', 'b.contract.jsonc', '--title', 'b', '--writable', 'src/usage.py', ...whole);
    expect(await cli('contract', 'check', 'b.contract.jsonc')).toMatchObject({ code: 0, value: { errors: 0 } });
  });

  it('ends a second Kernel process by name, without touching the first', async () => {
    const { pid } = (await cli('kernel', 'start')).value as { pid: number };
    const second = spawn(process.execPath, [path.join(dist, 'kernel.cjs')], {
      env: { ...process.env, ESCROW_HOME: home },
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    let stderr = '';
    second.stderr.on('data', (chunk: Buffer) => (stderr += chunk.toString('utf8')));
    const code = await new Promise((resolve) => second.on('close', resolve));
    expect(code).toBe(75);
    expect(stderr).toContain(String(pid));
    expect((await cli('kernel', 'status')).value).toMatchObject({ pid });
  });

  it('freezes a contract, twice to the same digest, and lists it', async () => {
    expect(await cli('contract', 'check', contractFile)).toMatchObject({ code: 0, value: { errors: 0 } });
    const first = await cli('contract', 'freeze', contractFile);
    const again = await cli('contract', 'freeze', contractFile);
    expect(first.code).toBe(0);
    const digest = (first.value as { digest: string }).digest;
    expect(digest).toMatch(/^[0-9a-f]{64}$/);
    expect((again.value as { digest: string }).digest).toBe(digest);
  });

  describe('bad input', () => {
    it('an invalid contract: each fault with its place, nothing frozen', async () => {
      await writeFile(path.join(repo.root, 'bad.contract.jsonc'), '{\n  "title": "x",\n  "writeable": []\n}\n');
      const checked = await cli('contract', 'check', 'bad.contract.jsonc');
      expect(checked.code).toBe(1);
      const { diagnostics } = checked.value as { diagnostics: { line: number; message: string }[] };
      expect(diagnostics.some((each) => each.line === 3 && each.message.includes('writable'))).toBe(true);
      const frozen = await cli('contract', 'freeze', 'bad.contract.jsonc');
      expect(frozen.code).toBe(2);
      expect(errorOf(frozen).code).toBe('InvalidContract');
    });

    it('what cannot be a contract file: told by name, and nothing is waited for', async () => {
      const pipe = path.join(repo.root, 'pipe.contract.jsonc');
      execFileSync('mkfifo', [pipe]);
      const wide = path.join(repo.root, 'wide.contract.jsonc');
      await writeFile(wide, Buffer.from('{}', 'utf16le').fill(0xff, 0, 1));
      const long = path.join(repo.root, 'long.contract.jsonc');
      await writeFile(long, ' '.repeat(1_000_001));
      for (const [file, what] of [
        [pipe, 'is no file'],
        [repo.root, 'is no file'],
        [wide, 'is not UTF-8 text'],
        [long, 'is too long'],
      ] as const) {
        const result = await cli('contract', 'check', file);
        expect(result.code, what).toBe(2);
        expect(errorOf(result).message).toContain(what);
      }
    });

    it('no git repository', async () => {
      await rm(path.join(repo.root, '.git'), { recursive: true });
      const frozen = await cli('contract', 'freeze', contractFile);
      expect(frozen.code).toBe(2);
      expect(errorOf(frozen).code).toBe('NotAGitRepository');
      expect(errorOf(frozen).next).toContain('git init');
    });

    it('no container engine: doctor and baseline say so and what to do', async () => {
      await writeFile(path.join(home, 'settings.json'), JSON.stringify({ engineHost: '/nowhere/docker.sock' }));
      const doctor = await cli('doctor');
      expect(doctor.code).toBe(5);
      expect(doctor.value).toMatchObject({ ok: false, kernel: { engine: { state: 'unavailable' } } });
      const baseline = await cli('contract', 'baseline', contractFile);
      expect(baseline.code).toBe(5);
      expect(errorOf(baseline).code).toBe('EngineUnavailable');
      expect(errorOf(baseline).next).not.toBe('');
    });

    it('a state folder that is none, or that is open to others', async () => {
      const file = path.join(home, 'a-file');
      await writeFile(file, '');
      const open = path.join(home, 'open');
      await mkdir(open);
      await chmod(open, 0o777);
      for (const bad of [file, path.join(file, 'below'), open]) {
        const started = await escrow(['kernel', 'start'], { cwd: repo.root, home: bad });
        expect(started.code, bad).toBe(3);
        expect(errorOf(started).code, bad).toBe('UnsafePath');
        expect(errorOf(started).next, bad).not.toBe('');
      }
    });

    it('settings that are not valid', async () => {
      await writeFile(path.join(home, 'settings.json'), '{ "engineHost": 5 }');
      const started = await cli('kernel', 'start');
      expect(started.code).toBe(3);
      expect(errorOf(started).code).toBe('InvalidSettings');
    });

    it('sessions, candidates and contracts that are not there', async () => {
      for (const args of [
        ['session', 'show', 'ses_nobodyatall'],
        ['session', 'show', 'last'],
        ['candidate', 'diff', 'last'],
        ['contract', 'baseline', 'abcdef'],
      ]) {
        expect(await cli(...args), args.join(' ')).toMatchObject({ code: 2 });
      }
    });
  });

  it('leaves no Kernel behind when its folder goes idle', async () => {
    await writeFile(path.join(home, 'settings.json'), JSON.stringify({ idleExitMs: 50 }));
    const { pid } = (await cli('kernel', 'start')).value as { pid: number };
    await eventually('the Kernel ends by itself', async () => (await processStart(pid)) === undefined);
    expect((await cli('kernel', 'status')).code).toBe(3);
  });
});
