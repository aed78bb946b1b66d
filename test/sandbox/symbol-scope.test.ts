// A contract that names symbols, from the edit to the working tree, in a real Kernel and a real container.
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { RelPath } from '../../src/protocol/primitives.ts';
import type { CandidateView, SessionView } from '../../src/protocol/views.ts';
import { exampleRepo, type ExampleRepo } from '../fixtures/example-repo.ts';
import { handOver } from '../fixtures/handed-over.ts';
import { prepareContract, sessionAt, startSession, turns, verified, writeScript } from '../fixtures/journey.ts';
import { endKernel, makeHome, startTestKernel, type TestKernel } from '../fixtures/kernel.ts';
import { ensureSandboxImage, textOf } from '../fixtures/sandbox.ts';

const file = 'src/usage.py' as RelPath;
const reviewer = { name: 'test', channel: 'script' as const };
const replace = (old: string, next: string): unknown => ({
  toolCalls: [
    {
      name: 'file_editor',
      arguments: { command: 'str_replace', path: `/workspace/${file}`, old_str: old, new_str: next },
    },
  ],
});
const rest = { toolCalls: [{ name: 'terminal', arguments: { command: 'python3 -m unittest -v tests.test_usage' } }] };

let kernel: TestKernel;
let repo: ExampleRepo;
let before: string;
beforeAll(async () => {
  await ensureSandboxImage();
  repo = await exampleRepo();
  before = await readFile(path.join(repo.root, file), 'utf8');
  kernel = await startTestKernel({ home: await makeHome() });
});
afterAll(async () => {
  await kernel.dispose();
  await repo.dispose();
});

const newest = (view: SessionView): CandidateView => {
  const candidate = view.candidates.at(-1);
  if (candidate === undefined) throw new Error('no candidate');
  return candidate;
};

describe('a contract that lets one function change', () => {
  it('an edit outside is refused and told why; one inside passes, is verified within scope, accepted and integrated', async () => {
    const digest = await prepareContract(kernel.kernel, repo.contract);
    const model = await writeScript(kernel.home, 'symbol-scope', [
      turns.view,
      replace('strftime("%Y-%m-%d")', 'strftime("%F")'),
      replace('import sys\n', 'import sys\nimport time\n'),
      turns.edit,
      turns.test,
      rest,
      turns.finish,
    ]);
    const { session } = await startSession(kernel.kernel, digest, model);
    const view = await sessionAt(kernel.kernel, session.id, 'verified', verified);

    const said = view.attempts[0]?.activity.filter(({ kind }) => kind === 'denied').map(({ text }) => text) ?? [];
    expect(said).toEqual([
      expect.stringMatching(/only timestamp may change\. Line 24 is outside and would be `.*strftime\("%F"\)`/),
      expect.stringMatching(/Line 11 is outside and would be new: `import time`\. Imports may not change\./),
    ]);
    const { events } = await kernel.kernel.call('session/events', { session: session.id, limit: 1000 });
    const logs = events.flatMap(
      ({ data }) => (data as { collection?: { auditLog: { sha256: string } } } | null)?.collection?.auditLog ?? [],
    );
    const { base64 } = await kernel.kernel.call('artefact/read', { sha256: logs[0]?.sha256 ?? '', offset: 0 });
    expect(textOf(Buffer.from(base64, 'base64')).split('out_of_scope').length - 1).toBe(2);

    const candidate = newest(view);
    const run = candidate.verifications[0];
    expect(candidate.verdict).toBe('passed');
    expect(run?.scope).toEqual([
      {
        path: file,
        symbols: [{ name: 'timestamp', exists: true }],
        outcome: 'inside',
        reason: null,
        line: null,
        found: null,
        expected: null,
        grammar: expect.objectContaining({ package: '@vscode/tree-sitter-wasm', language: 'python' }),
      },
    ]);
    const integration = await kernel.kernel.call('candidate/accept', {
      session: session.id,
      candidate: candidate.digest,
      verification: run?.runId ?? '',
      reviewer,
      comment: '',
      integrate: true,
    });
    expect(integration.integration?.state).toBe('integrated');
    const after = await readFile(path.join(repo.root, file), 'utf8');
    expect(after).toContain('moment.replace(tzinfo=timezone.utc)');
    expect(after).toContain('strftime("%Y-%m-%d")');
  });

  it('bytes out of scope that come to a candidate all the same are not passed, whatever the checks say, and nobody can accept them', async () => {
    // Back to the base, so that nothing but the scope is against it.
    const { sessions } = await kernel.kernel.call('session/list', { limit: 1 });
    const [{ id } = { id: null }] = sessions;
    if (id === null) throw new Error('there is no session');
    const first = await kernel.kernel.call('session/get', { session: id });
    const undone = newest(first).integrations[0];
    if (undone === undefined) throw new Error('nothing was integrated');
    await kernel.kernel.call('integration/undo', { session: first.id, integration: undone.id });
    const { contract } = await kernel.kernel.call('contract/get', { digest: first.contractDigest });
    const { home } = kernel;
    await endKernel(home);

    const right = '    return datetime.fromisoformat(text).timestamp()\n';
    const good = before.replace(
      right,
      '    moment = datetime.fromisoformat(text)\n    if moment.tzinfo is None:\n        moment = moment.replace(tzinfo=timezone.utc)\n    return moment.timestamp()\n',
    );
    // Every check passes on it: it does the same. Only the text is another, in a function that is not named.
    const bytes = Buffer.from(good.replace('json.loads(line)', '(json.loads(line))'));
    const session = await handOver(home, first, contract, { path: file, bytes });

    kernel = await startTestKernel({ home });
    const view = await sessionAt(kernel.kernel, session, 'verified', verified);
    const candidate = newest(view);
    const run = candidate.verifications[0];
    expect(run?.checks.filter(({ kind }) => kind === 'acceptance').map(({ verdict }) => verdict)).toEqual([
      'pass',
      'pass',
    ]);
    expect(run?.scope).toMatchObject([
      {
        outcome: 'outside',
        reason: 'changed',
        line: 32,
        found: 'event = (json.loads(line))',
        expected: 'event = json.loads(line)',
      },
    ]);
    expect(run?.result).toBe('failed');
    expect(run?.reasons).toContain('out-of-scope: src/usage.py (changed)');
    expect(candidate.verdict).toBe('failed');
    await expect(
      kernel.kernel.call('candidate/accept', {
        session,
        candidate: candidate.digest,
        verification: run?.runId ?? '',
        reviewer,
        comment: '',
        integrate: true,
      }),
    ).rejects.toMatchObject({ code: 'OutOfScope' });
    expect(await readFile(path.join(repo.root, file), 'utf8')).toBe(before);
  });
});
