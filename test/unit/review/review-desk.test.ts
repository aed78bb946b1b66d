import { mkdtemp, readFile, realpath, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { EscrowError } from '../../../src/protocol/errors.ts';
import { sha256 } from '../../../src/protocol/hash.ts';
import type { CandidateDigest, SessionId } from '../../../src/protocol/primitives.ts';
import { ReviewDesk, type ReviewDeskDeps } from '../../../src/server/review/review-desk.ts';
import type { Command } from '../../../src/server/session/commands.ts';

const session = 'ses_0000000000' as SessionId;
const candidate = 'candidate' as CandidateDigest;
let root: string;
let home: string;
beforeEach(async () => {
  root = await realpath(await mkdtemp(path.join(os.tmpdir(), 'escrow-tree-')));
  home = await mkdtemp(path.join(os.tmpdir(), 'escrow-home-'));
  await writeFile(path.join(root, 'a.txt'), 'old');
});
afterEach(async () => {
  await rm(root, { recursive: true, force: true });
  await rm(home, { recursive: true, force: true });
});

const ref = (text: string) => ({ sha256: sha256(text), size: text.length });
const file = {
  path: 'a.txt',
  change: 'modified',
  before: ref('old'),
  after: ref('new'),
  beforeMode: 0o644,
  afterMode: 0o644,
};

/** A desk whose record refuses some commands; `recorded` has what it was asked for. */
function deskWith(
  refuses: (command: Command) => boolean,
  record: object = {},
): { desk: ReviewDesk; recorded: Command[] } {
  const recorded: Command[] = [];
  const row = { id: 'int_0000000000', state: 'integrated' };
  const state = {
    root,
    contractDigest: 'c',
    candidates: [{ digest: candidate, files: [file], integrations: [row], newFolders: [], undoing: null, ...record }],
  };
  const deps = {
    sessions: {
      get: () => state,
      open: () => [session],
      execute: (_: SessionId, command: Command) => {
        recorded.push(command);
        if (refuses(command)) throw new EscrowError('StorageFull', 'full', 'Free some space.');
      },
    },
    contracts: { get: () => ({ contract: { files: [] } }) },
    artefacts: { get: (hash: string) => Promise.resolve(Buffer.from(hash === sha256('new') ? 'new' : 'old')) },
    home,
    clients: () => [],
    log: () => undefined,
    at: () => undefined,
  } as unknown as ReviewDeskDeps;
  return { desk: new ReviewDesk(deps), recorded };
}
/** A record that waits for the end of an integration and of an undo. */
const open = { integrations: [{ id: 'int_0000000001', state: 'intended' }], undoing: 'int_0000000002' };
const told = (commands: readonly Command[]) =>
  commands.flatMap((command) => (command.kind === 'observe-integration' ? [command.state] : []));

it('an integration that was carried out and could not be recorded is never recorded as refused', async () => {
  const { desk, recorded } = deskWith(
    (command) => command.kind === 'observe-integration' && command.state === 'integrated',
  );
  await expect(desk.integrate(session, candidate)).rejects.toMatchObject({ code: 'StorageFull' });
  expect(await readFile(path.join(root, 'a.txt'), 'utf8')).toBe('new');
  expect(told(recorded)).toEqual(['integrated']);
});

it('nor is an undo that was carried out', async () => {
  await writeFile(path.join(root, 'a.txt'), 'new');
  const { desk, recorded } = deskWith(
    (command) => command.kind === 'observe-integration' && command.state === 'undone',
  );
  await expect(desk.undo(session, 'int_0000000000' as never)).rejects.toMatchObject({ code: 'StorageFull' });
  expect(await readFile(path.join(root, 'a.txt'), 'utf8')).toBe('old');
  expect(told(recorded)).toEqual(['undone']);
});

it('one that changed nothing is recorded as refused', async () => {
  await writeFile(path.join(root, 'a.txt'), 'of somebody else');
  const { desk, recorded } = deskWith(() => false);
  await expect(desk.integrate(session, candidate)).rejects.toMatchObject({ code: 'BaseChanged' });
  expect(told(recorded)).toEqual(['refused']);
});

it('an undo of what the person has put back already writes nothing and is undone', async () => {
  const { desk, recorded } = deskWith(() => false);
  await desk.undo(session, 'int_0000000000' as never);
  expect(await readFile(path.join(root, 'a.txt'), 'utf8')).toBe('old');
  expect(told(recorded)).toEqual(['undone']);
});

it.each([
  ['old', ['refused', 'undone']],
  ['new', ['integrated', 'undo_refused']],
  ['of somebody else', ['partial', 'undo_refused']],
])('after a crash the record says where the files stand: %s', async (bytes, states) => {
  await writeFile(path.join(root, 'a.txt'), bytes);
  const { desk, recorded } = deskWith(() => false, open);
  await desk.reconcile();
  expect(told(recorded)).toEqual(states);
});

it('of a tree that is not there, nothing is said', async () => {
  await rm(root, { recursive: true });
  const { desk, recorded } = deskWith(() => false, open);
  await desk.reconcile();
  expect(recorded).toEqual([]);
});
