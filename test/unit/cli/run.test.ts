import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { commands } from '../../../src/cli/commands/all.ts';
import { exitCodeOf } from '../../../src/cli/exit-code.ts';
import type { KernelAccess, KernelLink } from '../../../src/cli/kernel-access.ts';
import { createOutput } from '../../../src/cli/output.ts';
import { runCli } from '../../../src/cli/run.ts';
import { errorCodes, EscrowError, type ErrorCode } from '../../../src/protocol/errors.ts';

interface Ran {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Runs a command line over a Kernel that answers as given; the wire is not what these tests are about. */
async function run(
  argv: readonly string[],
  answer: (method: string, params: unknown) => unknown = () => ({}),
): Promise<Ran> {
  let stdout = '';
  let stderr = '';
  const link: KernelLink = {
    call: async (method, params) => answer(method, params) as never,
    on: () => () => undefined,
    ended: new Promise(() => undefined),
  };
  const kernel: KernelAccess = {
    restore: () => Promise.reject(new Error('not part of this test')),
    connect: async () => link,
    find: async () => undefined,
    connected: true,
    home: '/nowhere',
    logFile: '/nowhere/kernel.log',
  };
  const code = await runCli(argv, {
    commands,
    version: '1.2.3',
    kernel,
    interrupted: new AbortController().signal,
    confirm: async () => false,
    output: (json) =>
      createOutput(
        { json, colour: false },
        { write: (text) => (stdout += text) },
        { write: (text) => (stderr += text) },
        {},
      ),
  });
  return { code, stdout, stderr };
}

describe('command line', () => {
  it('prints an overview that names every command', async () => {
    const { code, stdout } = await run(['--help']);
    expect(code).toBe(0);
    for (const command of commands) expect(stdout).toContain(command.path.join(' '));
  });

  it.each(commands.map((command) => [command.path.join(' '), command] as const))(
    'has help for %s',
    async (_, command) => {
      const { code, stdout } = await run([...command.path, '--help']);
      expect(code).toBe(0);
      expect(stdout).toContain(command.summary);
      expect(stdout).toContain('Exit codes:');
      for (const option of Object.keys(command.options)) expect(stdout).toContain(`--${option}`);
    },
  );

  it.each([
    ['an unknown command', ['fly'], 'there is no command "fly"\n'],
    ['an unknown verb', ['session', 'fly'], 'there is no command "session fly"\n'],
    ['a mistyped verb', ['session', 'lsit'], 'did you mean "session list"?'],
    ['a mistyped command', ['contrat', 'check', 'x'], 'did you mean "contract check"?'],
    ['an unknown option', ['doctor', '--fly'], 'there is no option --fly\n'],
    ['a mistyped option', ['session', 'list', '--limt', '3'], 'there is no option --limt; did you mean --limit?'],
    ['a new contract of another name', ['contract', 'new', 'x.json'], 'ends in .contract.jsonc'],
    ['a command with an open quote', ['contract', 'new', '--check', 'a "b'], 'a quote in --check stays open'],
    ['a missing argument', ['contract', 'check'], 'FILE is missing'],
    ['an empty argument, with which every id begins', ['session', 'show', ''], 'SESSION is empty'],
    ['an empty argument that may be left out', ['candidate', 'accept', 'last', ''], 'CANDIDATE is empty'],
    ['a verb that a group with an own meaning has not', ['salvage', 'wriet', 'x'], 'did you mean "salvage write"?'],
    ['an option before any command', ['--hepl'], 'there is no option --hepl; did you mean --help?'],
    ['an option without its value', ['session', 'start', 'x', '--model'], '--model needs a value: --model NAME'],
    ['an option whose value is empty', ['session', 'list', '--root', ''], '--root needs a value'],
    ['a value that looks like an option', ['session', 'start', 'x', '--model', 'm', '--seed', '-1'], '--seed=N where'],
    ['a value for an option that has none', ['doctor', '--json=3'], '--json takes no value'],
    ['an argument too many', ['doctor', 'now'], 'too many arguments: now'],
    ['a missing model', ['session', 'start', 'x.contract.jsonc'], '--model is missing'],
    [
      'options that exclude each other',
      ['session', 'start', 'x', '--model', 'm', '--watch', '--detach'],
      'exclude each other',
    ],
    ['a number that is none', ['session', 'list', '--limit', '-3'], 'limit'],
  ])('answers %s with usage and exit code 2', async (_, argv, message) => {
    const { code, stdout, stderr } = await run(argv);
    expect(code).toBe(2);
    expect(stdout).toBe('');
    expect(stderr).toContain(message);
    expect(stderr).toContain('→ ');
  });

  it('takes the options of every command also before its name, and answers a missing verb in JSON too', async () => {
    const help = await run(['--help', 'kernel', 'log']);
    expect(help.code).toBe(0);
    expect(help.stdout).toContain('Usage: escrow kernel log');
    expect((await run(['help', 'kernel', 'log'])).stdout).toBe(help.stdout);
    expect((await run(['kernel', 'log', '-h'])).stdout).toBe(help.stdout);
    expect(await run(['help', 'kernel'])).toMatchObject({ code: 0, stdout: expect.stringContaining('kernel log') });
    expect((await run(['help', 'kernel'])).stdout).not.toContain('session start');
    expect(await run(['-v'])).toMatchObject({ code: 0, stdout: '1.2.3\n' });
    const { code, stdout } = await run(['--json', 'contract']);
    expect(code).toBe(2);
    expect(JSON.parse(stdout)).toMatchObject({ error: { code: 'Usage', next: 'escrow contract --help' } });
  });

  it('shows of a container that was read out also how much, and that there is a log', async () => {
    const sha256 = 'ab'.repeat(32);
    const container = {
      engineId: 'f1'.repeat(32),
      name: 'escrow-attempt-att_1',
      at: 0,
      purpose: 'attempt',
      owner: 'att_1',
      session: null,
      files: 1,
      bytes: 4,
      paths: ['a.py'],
      lost: 0,
      auditLog: { sha256, size: 2048 },
      fault: null,
      tries: 1,
    };
    const files = [{ path: 'a.py', mode: 0o755, artefact: { sha256, size: 4 } }];
    const answers: Record<string, unknown> = {
      'salvage/list': { containers: [container], more: false },
      'salvage/get': { container, files, more: false },
    };
    const { code, stdout } = await run(['salvage', 'show', 'last'], (method) => answers[method]);
    expect(code).toBe(0);
    expect(stdout).toContain('  1 files, 4 bytes · log of what was done in it, 2.0 KiB\n');
    expect(stdout).toMatch(/ {2}0755 {2}(?:ab)+ +4 bytes {2}a\.py\n/);
    expect(stdout).not.toContain('more');
  });

  it('names an unreadable contract and what to do, before any Kernel is asked', async () => {
    const { code, stderr } = await run(['contract', 'freeze', '/nowhere/x.contract.jsonc'], () => {
      throw new Error('asked');
    });
    expect(code).toBe(2);
    expect(stderr).toContain('/nowhere/x.contract.jsonc cannot be read (ENOENT)');
  });

  it('says how to find what was named wrong, and which state folder it is about', async () => {
    const sessions = (method: string): unknown => {
      if (method === 'session/list') return { sessions: [{ id: 'ses_1', createdAt: 1 }], more: false };
      if (method === 'contract/list') return { contracts: [] };
      throw new EscrowError('StorageFull', 'No space left.', 'Free space.');
    };
    expect((await run(['session', 'show', 'nope'], sessions)).stderr).toContain(
      '→ List them with: escrow session list',
    );
    const none = await run(['candidate', 'diff', 'last'], () => ({ sessions: [], more: false }));
    expect(none.stderr).toContain('→ Start one with: escrow session start');
    expect((await run(['contract', 'baseline', 'abcdef12'], sessions)).stderr).toContain('escrow contract freeze FILE');
    expect((await run(['kernel', 'status'])).stderr).toMatch(
      /no Kernel is running.*\n→ .*\n {2}state folder: \/nowhere/,
    );
    expect((await run(['kernel', 'backup'], sessions)).stderr).toContain('state folder: /nowhere');
    const invalid = (): never => {
      throw new EscrowError('InvalidParams', 'host: Too big', 'This is a fault of the client; update it.');
    };
    expect((await run(['engine', 'approve', 'x', '--reviewer', 'a'], invalid)).stderr).toContain(
      '→ See what the command takes: escrow engine approve --help',
    );
  });

  it('takes a rehearsal script also by the name under which models lists it', async () => {
    const asked: unknown[] = [];
    const answer = (method: string, params: unknown): unknown => {
      asked.push([method, params]);
      if (method === 'contract/get') return { digest: 'd', root: '/r', baseline: {} };
      throw new EscrowError('ModelNotFound', 'no', 'yes');
    };
    const digest = 'ab'.repeat(32);
    for (const model of ['cart-cents', 'rehearsal/cart-cents', './own/script.json']) {
      await run(['session', 'start', digest, '--engine', 'rehearsal', '--model', model], answer);
    }
    const models = asked.flatMap((each) => (each as [string, { model?: string }])[1].model ?? []);
    expect(models).toEqual(['cart-cents', 'cart-cents', path.resolve('own/script.json')]);
  });

  it('prints a refusal as message, then what to do next; as JSON with its code and details', async () => {
    const refuse = (): never => {
      throw new EscrowError('CloudModelRefused', 'gpt:cloud runs elsewhere', 'Choose a local model.', {
        tag: 'gpt:cloud',
      });
    };
    const plain = await run(['models'], refuse);
    expect(plain).toEqual({
      code: 4,
      stdout: '',
      stderr: 'error: gpt:cloud runs elsewhere [CloudModelRefused]\n→ Choose a local model.\n',
    });
    const json = await run(['models', '--json'], refuse);
    expect(JSON.parse(json.stdout)).toEqual({
      error: {
        code: 'CloudModelRefused',
        message: 'gpt:cloud runs elsewhere',
        next: 'Choose a local model.',
        details: { tag: 'gpt:cloud' },
      },
    });
  });

  it('does not let hostile text from the Kernel reach the terminal', async () => {
    const model = {
      engine: 'ollama',
      tag: 'evil\u001b[2J',
      parameterSize: null,
      quantisation: null,
      digest: null,
      sizeBytes: null,
      contextAdvertised: null,
      capabilities: [],
      unproven: ['\u202eabc'],
      loaded: false,
      fit: null,
      refused: null,
      description: '',
    };
    const { stdout } = await run(['models'], () => ({ models: [model], silent: [] }));
    expect(stdout).toContain('evil⟨ESC⟩[2J');
    expect(stdout).toContain('⟨U+202E⟩abc');
  });

  it('calls what is not a coded error a defect and exits with 1', async () => {
    const { code, stderr } = await run(['models'], () => {
      throw new TypeError('boom');
    });
    expect(code).toBe(1);
    expect(stderr).toContain('This is a defect of Escrow.');
  });

  it('says that no Kernel runs without starting one', async () => {
    const { code, stderr } = await run(['kernel', 'status']);
    expect(code).toBe(3);
    expect(stderr).toContain('escrow kernel start');
  });

  it('needs a reviewer and the candidate by name where nobody is asked', async () => {
    const digest = 'ab'.repeat(32);
    const session = {
      id: 'ses_0123456789',
      root: '/r',
      candidates: [{ digest, verdict: 'passed', verifications: [{ runId: 'run_0123456789', result: 'passed' }] }],
    };
    const answer = (method: string): unknown => {
      if (method === 'session/get') return session;
      throw new Error(`${method} must not be called`);
    };
    const nameless = await run(['candidate', 'accept', session.id], answer);
    expect(nameless.code).toBe(2);
    expect(nameless.stderr).toContain('--reviewer is missing');
    const unnamed = await run(['candidate', 'accept', session.id, '--reviewer', 'ci'], answer);
    expect(unnamed.code).toBe(2);
    expect(unnamed.stderr).toContain('name the candidate by at least twelve digits');
  });

  it('undoes an integration again after an undo that was refused', async () => {
    const session = {
      id: 'ses_0123456789',
      candidates: [{ digest: 'ab'.repeat(32), integrations: [{ id: 'int_0123456789', state: 'undo_refused' }] }],
    };
    const undone = { id: 'int_0123456789', state: 'undone', reason: null, files: ['a.py'], moved: [], unsaved: 'none' };
    const asked: unknown[] = [];
    const { code } = await run(['candidate', 'undo', session.id], (method, params) => {
      if (method === 'session/get') return session;
      asked.push([method, params]);
      return { session, integration: undone };
    });
    expect(asked).toEqual([['integration/undo', { session: session.id, integration: undone.id }]]);
    expect(code).toBe(0);
  });

  it('refuses to accept what has not passed, by name', async () => {
    const digest = 'ab'.repeat(32);
    const session = {
      id: 'ses_0123456789',
      root: '/r',
      candidates: [{ digest, verdict: 'failed', verifications: [{ runId: 'run_0123456789', result: 'failed' }] }],
    };
    const { code, stderr } = await run(['candidate', 'accept', session.id, digest, '--reviewer', 'ci'], () => session);
    expect(code).toBe(4);
    expect(stderr).toContain('[NotVerified]');
  });

  it('gives each error code a documented exit code', () => {
    for (const code of Object.keys(errorCodes)) expect([1, 2, 3, 4, 5, 130]).toContain(exitCodeOf(code as ErrorCode));
  });
});
