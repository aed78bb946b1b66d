// Set-up must prepare the engine that a Kernel will use, and never start another than the one that somebody named.
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { engineChoiceHere, engineSetting } from '../../../scripts/lib/engine-here.ts';
import { engineQuestions, ensureEngine } from '../../../scripts/lib/engine.ts';
import { SetupError, type Ui } from '../../../scripts/lib/ui.ts';
import { sha256 } from '../../../src/protocol/hash.ts';

let folder: string;
const asked: string[] = [];
const ui: Ui = {
  log: () => undefined,
  confirm: ({ text }) => {
    asked.push(text);
    return Promise.resolve(false);
  },
};
beforeEach(async () => {
  folder = await mkdtemp(path.join(os.tmpdir(), 'escrow-engine-'));
  asked.length = 0;
  for (const name of ['DOCKER_HOST', 'DOCKER_CONTEXT']) vi.stubEnv(name, undefined);
  vi.stubEnv('DOCKER_CONFIG', folder);
  vi.stubEnv('ESCROW_HOME', folder);
});
afterEach(async () => {
  vi.unstubAllEnvs();
  await rm(folder, { recursive: true });
});

it('is the docker context’s, where the user has chosen one', async () => {
  const meta = path.join(folder, 'contexts', 'meta', sha256('mine'));
  await mkdir(meta, { recursive: true });
  const host = `unix://${folder}/mine.sock`;
  await writeFile(path.join(meta, 'meta.json'), JSON.stringify({ Endpoints: { docker: { Host: host } } }));
  await writeFile(path.join(folder, 'config.json'), JSON.stringify({ currentContext: 'mine' }));
  expect(engineChoiceHere().address).toEqual({ kind: 'socket', path: path.join(folder, 'mine.sock') });
  // It does not answer: nobody asks whether another one may be started.
  expect(await engineQuestions(null)).toEqual([]);
  await expect(ensureEngine(null, ui)).rejects.toThrow(/^the container engine that docker context mine names does not/);
  expect(asked).toEqual([]);
});

it('is the one of the machine settings, before DOCKER_HOST', async () => {
  vi.stubEnv('DOCKER_HOST', `unix://${folder}/variable.sock`);
  expect(await engineSetting()).toBeNull();
  await writeFile(path.join(folder, 'settings.json'), JSON.stringify({ engineHost: `${folder}/set.sock` }));
  const setting = await engineSetting();
  expect(engineChoiceHere(setting).address).toEqual({ kind: 'socket', path: path.join(folder, 'set.sock') });
  await expect(ensureEngine(setting, ui)).rejects.toThrow(/^the container engine that the machine setting names/);
  await expect(ensureEngine(null, ui)).rejects.toThrow(/^the container engine that DOCKER_HOST names/);
});

it('is refused, with what to do, where it can’t be spoken to', () => {
  vi.stubEnv('DOCKER_HOST', 'ssh://me@far');
  expect(() => engineChoiceHere()).toThrow(SetupError);
});
