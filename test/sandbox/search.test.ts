// The tool `search` in a real attempt: what it shows, what it can't, and what the audit on both sides has of it.
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { ContractDigest } from '../../src/protocol/primitives.ts';
import type { SessionView } from '../../src/protocol/views.ts';
import { imageRepository, replacement, type ImageRepository } from '../fixtures/image-repository.ts';
import { prepareContract, sessionAt, startSession, verified, writeScript } from '../fixtures/journey.ts';
import { startTestKernel, type TestKernel } from '../fixtures/kernel.ts';
import { ensureSandboxImage, textOf } from '../fixtures/sandbox.ts';

const needle = 'LOCAL_ZONE';
const search = (args: unknown) => ({ toolCalls: [{ name: 'search', arguments: args }] });
const script = [
  search({ query: needle }),
  search({ query: needle, path: '/workspace/src' }),
  search({ query: needle, path: '/workspace/private' }),
  search({ query: `${needle}\nx` }),
  ...replacement('src/zone.py', `${needle} = 1`, `${needle} = 2`),
  ...replacement('src/zone.py', `${needle} = 1`, `${needle} = 2`).slice(-1),
];

let kernel: TestKernel;
const repos: ImageRepository[] = [];
beforeAll(async () => {
  await ensureSandboxImage();
  kernel = await startTestKernel();
});
afterAll(async () => {
  await kernel.dispose();
  for (const repo of repos) await repo.dispose();
});

async function contractWith(tools: 'search'[]): Promise<ContractDigest> {
  const repo = await imageRepository(
    null,
    {
      'src/zone.py': `${needle} = 1\n`,
      'lib/use.py': `from src.zone import ${needle}\n`,
      'private/key.py': `${needle} = 'not for the model'\n`,
      'tests/check.py': `from src.zone import ${needle}\nassert ${needle} == 2\n`,
    },
    {
      title: 'Another zone',
      instruction: 'Make the zone 2.',
      snapshot: { include: ['src/**', 'lib/**', 'private/**', 'tests/**'] },
      readable: ['src/**', 'lib/**'],
      writable: ['src/zone.py'],
      acceptance: [
        { id: 'zone', argv: ['python3', '-m', 'tests.check'], baseline: 'fail' },
        // Control: what is not shown is there, in the same sandbox, and has the text.
        { id: 'there', argv: ['grep', '-q', needle, 'private/key.py'], baseline: 'pass' },
      ],
      tools,
    },
  );
  repos.push(repo);
  return prepareContract(kernel.kernel, repo.contract);
}

async function attemptOn(tools: 'search'[]): Promise<{ readonly view: SessionView; readonly audit: string }> {
  const digest = await contractWith(tools);
  const model = await writeScript(kernel.home, `search-${tools.length}`, script);
  const { session } = await startSession(kernel.kernel, digest, model);
  const view = await sessionAt(kernel.kernel, session.id, 'verified', verified);
  const { events } = await kernel.kernel.call('session/events', { session: session.id, limit: 1000 });
  const logs = events.flatMap(
    ({ data }) => (data as { collection?: { auditLog: { sha256: string } | null } } | null)?.collection?.auditLog ?? [],
  );
  const [log] = logs;
  if (log === undefined) throw new Error('no audit was collected');
  const { base64 } = await kernel.kernel.call('artefact/read', { sha256: log.sha256, offset: 0 });
  return { view, audit: textOf(Buffer.from(base64, 'base64')) };
}

describe('search in an attempt', () => {
  it('finds what may be read and nothing else; every look is in an audit on which both sides agree', async () => {
    const { view, audit } = await attemptOn(['search']);
    const attempt = view.attempts[0];
    expect(attempt).toMatchObject({ outcome: { kind: 'candidate' }, collection: { state: 'complete' } });
    expect(view.candidates[0]?.verdict).toBe('passed');

    const said = attempt?.activity.filter(({ title }) => title.startsWith('search')) ?? [];
    expect(said.map(({ kind, text }) => [kind, text.split('\n')])).toEqual([
      ['tool', ['']],
      [
        'result',
        [
          '2 lines in 2 of 2 files:',
          `/workspace/lib/use.py:1: from src.zone import ${needle}`,
          `/workspace/src/zone.py:1: ${needle} = 1`,
        ],
      ],
      ['tool', ['in /workspace/src']],
      ['result', ['1 line in 1 of 1 file:', `/workspace/src/zone.py:1: ${needle} = 1`]],
      ['tool', ['in /workspace/private']],
      ['denied', [expect.stringContaining('is not a file of this task')]],
      ['tool', ['']],
      ['result', [expect.stringContaining('more than one line')]],
    ]);
    expect(JSON.stringify(attempt?.activity)).not.toContain('not for the model');

    const entries = audit
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as { readonly op: string });
    expect(entries.map(({ op }) => op).filter((op) => op === 'read' || op === 'deny')).toEqual([
      // Two files, one of them again; the denial; then view and edit.
      'read',
      'read',
      'read',
      'deny',
      'read',
      'read',
    ]);
    expect(audit).toContain(`search ${needle} in /workspace/private`);
    expect(audit).not.toContain('private/key.py"');
  });

  it('is denied, audited and counted where the contract does not have it', async () => {
    const { view, audit } = await attemptOn([]);
    expect(view.candidates[0]?.verdict).toBe('passed');
    const denied = view.attempts[0]?.activity.filter(({ kind }) => kind === 'denied') ?? [];
    expect(denied.map(({ title }) => title)).toEqual(['search', 'search', 'search', 'search']);
    expect(audit.match(/tool_not_allowed/g)?.length).toBeGreaterThanOrEqual(4);
  });
});
