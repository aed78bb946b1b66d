// What was read out of containers that no record knew, by the built command line against the built Kernel. No container
// engine is needed: the records are written by the real book.
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { escrow, type CliResult } from '../../../scripts/lib/cli.ts';
import { sha256 } from '../../../src/protocol/hash.ts';
import { SalvageBook } from '../../../src/server/session/salvaged.ts';
import { openStore } from '../../../src/server/store/open-store.ts';
import { endKernel, makeHome } from '../../fixtures/kernel.ts';

let home: string;
let outside: string;
const whole = 'f1'.repeat(32);
const partly = 'f2'.repeat(32);
const cli = (...args: readonly string[]): Promise<CliResult> => escrow(args, { cwd: outside, home });
const errorOf = (result: CliResult) => (result.value as { error: { code: string; message: string } }).error;
const blobOf = (bytes: string): string => {
  const hash = sha256(bytes);
  const found = readdirSync(path.join(home, 'artefacts'), { recursive: true, encoding: 'utf8' });
  return path.join(home, 'artefacts', found.find((name) => path.basename(name).includes(hash.slice(2))) ?? '');
};

beforeEach(async () => {
  home = await makeHome();
  outside = await mkdtemp(path.join(os.tmpdir(), 'escrow-salvage-'));
  let now = 1000;
  const store = openStore({ home, now: () => now });
  const put = async (name: string, text: string, mode = 0o644) => ({
    path: name,
    mode,
    ...(await store.artefacts.put(Buffer.from(text), 'container:x')),
  });
  const book = new SalvageBook(store);
  const log = await store.artefacts.put(Buffer.from('{"op":"write"}\n'), 'container:x');
  const of = { owner: 'att_1', session: null, purpose: 'attempt', tries: 1, auditLog: null };
  const files = [await put('src/a.py', 'new\n'), await put('run.sh', '#!/bin/sh\n', 0o755)];
  book.record({ ...of, name: 'escrow-attempt-att_1', engineId: whole, fault: null, files, lost: [], auditLog: log });
  now += 1;
  const odd = [await put('ok.py', 'ok\n'), await put('.git/hooks/x', 'x'), await put('OK.PY', 'other\n')];
  book.record({
    ...of,
    name: 'escrow-attempt-att_2',
    engineId: partly,
    fault: 'no room',
    files: odd,
    lost: ['big.bin'],
  });
  store.close();
});
afterEach(async () => {
  await endKernel(home);
  await rm(home, { recursive: true, force: true });
  await rm(outside, { recursive: true, force: true });
});

it('it is listed, newest first, and written into a new folder with its log and a record', async () => {
  const listed = await cli('salvage');
  expect(listed).toMatchObject({
    code: 0,
    value: {
      more: false,
      containers: [
        { engineId: partly, fault: 'no room', files: 3, lost: 1 },
        { engineId: whole, at: 1000, fault: null, paths: ['src/a.py', 'run.sh'] },
      ],
    },
  });
  expect((await cli('salvage', '--limit', '1')).value).toMatchObject({ more: true, containers: [{}] });
  expect((await cli('salvage', 'show', 'f1')).value).toMatchObject({
    container: { engineId: whole },
    files: [{ path: 'src/a.py', mode: 0o644, artefact: { size: 4 } }, { path: 'run.sh' }],
  });
  const written = await cli('salvage', 'write', 'escrow-attempt-att_1', '--into', 'out');
  const folder = path.join(outside, 'out');
  expect(written).toMatchObject({ code: 0, value: { folder, files: [{ notWritten: null }, { notWritten: null }] } });
  expect(readdirSync(folder).toSorted()).toEqual(['audit-log.ndjson', 'files', 'salvage.json']);
  expect(readFileSync(path.join(folder, 'files/src/a.py'), 'utf8')).toBe('new\n');
  expect(JSON.parse(readFileSync(path.join(folder, 'salvage.json'), 'utf8'))).toMatchObject({
    container: { engineId: whole },
  });
});

it('what can’t be written is told by name, and the rest is written', async () => {
  await writeFile(blobOf('ok\n'), 'damaged');
  const written = await cli('salvage', 'write', 'last', '--into', 'out');
  expect(written.code).toBe(1);
  expect(written.value).toMatchObject({
    files: [
      { path: 'ok.py', notWritten: 'damaged' },
      { path: '.git/hooks/x', notWritten: 'git-folder' },
      { path: 'OK.PY', notWritten: null },
      { path: 'big.bin', notWritten: 'no-room' },
    ],
  });
  expect(readdirSync(path.join(outside, 'out/files'))).toEqual(['OK.PY']);
});

it('nothing is written into a folder that has something, nor without a folder or an id', async () => {
  await writeFile(path.join(outside, 'mine'), 'mine');
  const full = await cli('salvage', 'write', 'f1', '--into', '.');
  expect([full.code, errorOf(full).code]).toEqual([4, 'UnsafePath']);
  expect((await cli('salvage', 'write', 'f1')).code).toBe(2);
  expect((await cli('salvage', 'write', '--into', 'out')).code).toBe(2);
  const both = await cli('salvage', 'write', 'f', '--into', 'out');
  expect([both.code, errorOf(both).message]).toEqual([2, expect.stringContaining('2 salvaged containers')]);
  expect(existsSync(path.join(outside, 'out'))).toBe(false);
  expect(readdirSync(outside)).toEqual(['mine']);
});
