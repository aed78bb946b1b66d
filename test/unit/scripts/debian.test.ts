// Set-up's steps run side by side, and apt-get works for one at a time. Programs of the same names stand on the PATH for
// the system's own.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterEach, beforeEach, expect, it } from 'vitest';

const module = pathToFileURL(path.resolve(import.meta.dirname, '../../../scripts/lib/debian.ts')).href;
let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(path.join(os.tmpdir(), 'escrow-apt-'));
  await program('dpkg-query', 'exit 1');
  await program('sudo', 'shift; exec "$@"');
});
afterEach(() => rm(folder, { recursive: true, force: true }));

async function program(name: string, body: string): Promise<void> {
  await writeFile(path.join(folder, name), `#!/bin/sh\n${body}\n`);
  await chmod(path.join(folder, name), 0o755);
}

/** Installs two sets of packages at once; what was said on stdout, and what apt-get was called with, in order. */
async function installBoth(
  pausesMs: readonly number[] = [],
): Promise<{ readonly said: string; readonly calls: readonly string[] }> {
  const script = `
    import { ensureDebianPackages } from ${JSON.stringify(module)};
    const ui = { log: () => {}, confirm: async () => true };
    const both = [['one'], ['two', 'three']].map((names) => ensureDebianPackages({ names, why: names[0] }, ui, ${JSON.stringify(pausesMs)}));
    for (const { status, reason } of await Promise.allSettled(both)) console.log(status, reason?.message ?? '');`;
  const child = spawn(process.execPath, ['--input-type=module', '-e', script], {
    env: {
      ...process.env,
      PATH: `${folder}:${process.env['PATH'] ?? ''}`,
      ESCROW_SET_UP_LOG: path.join(folder, 'set-up.log'),
    },
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  let said = '';
  child.stdout.on('data', (chunk: Buffer) => (said += chunk.toString('utf8')));
  await once(child, 'close');
  const log = await readFile(path.join(folder, 'calls'), 'utf8');
  return { said, calls: log.trimEnd().split('\n') };
}

/** Writes when it begins and ends; it would be seen if another one began in between. */
const aptGet = (end: string): string => `
for word in "$@"; do case "$word" in update | install) verb=$word;; esac; last=$word; done
echo "begin $verb $last" >> "${folder}/calls"
sleep 0.2
echo "end $verb $last" >> "${folder}/calls"
${end}`;

it('two steps that install packages take turns, and the lists are fetched once', async () => {
  await program('apt-get', aptGet('exit 0'));
  const { said, calls } = await installBoth();
  expect(said).toBe('fulfilled \nfulfilled \n');
  expect(calls).toEqual([
    'begin update update',
    'end update update',
    'begin install one',
    'end install one',
    'begin install three',
    'end install three',
  ]);
});

it('one that fails is told, and the other still has its turn', async () => {
  await program('apt-get', aptGet('test "$last" != one || { echo "E: no package one" >&2; exit 1; }'));
  const { said, calls } = await installBoth();
  expect(said).toBe('rejected apt-get install ended with exit code 1\nfulfilled \n');
  expect(calls.at(-1)).toBe('end install three');
  const log = await readFile(path.join(folder, 'set-up.log'), 'utf8');
  expect(log).toMatch(/apt-get .*install -y --no-install-recommends one\nE: no package one\n→ 1\n/);
});

it('one that fails once is tried again, with lists of packages that are fetched anew', async () => {
  await program(
    'apt-get',
    aptGet(`test "$verb" = update || test -e "${folder}/failed" || { touch "${folder}/failed"; exit 100; }`),
  );
  const { said, calls } = await installBoth([1]);
  expect(said).toBe('fulfilled \nfulfilled \n');
  expect(calls.filter((call) => call.startsWith('begin'))).toEqual([
    'begin update update',
    'begin install one',
    'begin update update',
    'begin install one',
    'begin install three',
  ]);
});
