// `escrow image …` as scripts use it: the built command line and Kernel.
import { randomBytes } from 'node:crypto';
import { readFile, rm } from 'node:fs/promises';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { escrow, type CliResult } from '../../scripts/lib/cli.ts';
import type { ImageList, ImagePlan, ImagePrune, ImageRecord } from '../../src/protocol/images.ts';
import { imageRepository, type ImageRepository } from '../fixtures/image-repository.ts';
import { endKernel, makeHome } from '../fixtures/kernel.ts';
import { ensureSandboxImage } from '../fixtures/sandbox.ts';
import { atTerminal } from '../fixtures/terminal.ts';

describe('escrow image', () => {
  let home: string;
  let repo: ImageRepository;
  const cli = (...args: readonly string[]): Promise<CliResult> => escrow(args, { cwd: repo.root, home });

  beforeAll(async () => {
    await ensureSandboxImage();
    home = await makeHome();
    const lock = await readFile(path.join(import.meta.dirname, '../fixtures/locks/small/requirements.lock'), 'utf8');
    repo = await imageRepository(
      'small',
      // A lock of this run alone: an image that another run made is not this one's.
      { 'a.txt': '1\n', 'requirements.lock': `${lock}# run ${randomBytes(8).toString('hex')}\n` },
      {
        title: 'T',
        instruction: 'I',
        writable: ['a.txt'],
        acceptance: [{ id: 'c', argv: ['pytest', '--version'], baseline: 'fail' }],
        image: { dependencies: { python: 'requirements.lock' } },
      },
    );
  });
  afterAll(async () => {
    await cli('image', 'prune', '--all', '--yes');
    await endKernel(home);
    await rm(home, { recursive: true, force: true });
    await repo.dispose();
  });

  it('plans, wants a name for a yes, prepares, lists and prunes', async () => {
    const file = 'task.contract.jsonc';
    const plan = await cli('image', 'plan', file);
    // Something is to be done: that is an answer of no.
    expect(plan).toMatchObject({ code: 1, value: { state: 'needed' } });
    expect((await cli('contract', 'baseline', file)).code).toBe(5);
    expect((await cli('image', 'prepare', file)).code).toBe(2);
    expect((await cli('image', 'prepare', file, '--yes')).code).toBe(2);
    expect((await cli('image', 'plan', file, '--base', 'x')).code).toBe(2);

    const prepared = await cli('image', 'prepare', file, '--yes', '--always', '--reviewer', 'ci');
    expect(prepared.code).toBe(0);
    const { record } = prepared.value as { readonly record: ImageRecord };
    expect(record).toMatchObject({
      plan: (plan.value as ImagePlan).plan,
      approval: { by: 'ci', channel: 'script', standing: true },
    });
    expect(await cli('image', 'plan', file)).toMatchObject({
      code: 0,
      value: { state: 'ready', image: { digest: record.image }, approval: { by: 'ci' } },
    });
    const list = (await cli('image', 'list')).value as ImageList;
    expect(list.images.find(({ id }) => id === record.image)).toMatchObject({ kind: 'prepared', owner: 'this-home' });

    expect((await cli('image', 'revoke', record.plan, '--reviewer', 'ci')).code).toBe(0);
    expect((await cli('image', 'plan', file)).value).toMatchObject({ approval: null });
    const preview = (await cli('image', 'prune', '--all', '--preview')).value as ImagePrune;
    expect(preview.done).toBe(false);
    expect(preview.removed.map(({ id }) => id)).toContain(record.image);
    expect((await cli('image', 'prune', '--all')).code).toBe(2);
    expect(await cli('image', 'prune', '--all', '--yes')).toMatchObject({ code: 0, value: { done: true, failed: [] } });
    expect((await cli('image', 'plan', file)).value).toMatchObject({ state: 'needed' });
  });

  it('shows a person the plan, asks, says what it does meanwhile, and ends with what was made and its sizes', async () => {
    const { code, statuses, text } = await atTerminal(['image', 'prepare', 'task.contract.jsonc'], {
      cwd: repo.root,
      home,
      answers: [['Do this? [y/N] ', 'y']],
    });
    expect(code).toBe(0);
    expect(statuses).toEqual([
      'waiting',
      'python requirements.lock · 45 %',
      'pack requirements.lock · 75 %',
      expect.stringMatching(/^executor \S+ · 95 %$/),
      expect.stringMatching(/^done escrow-sandbox:\S+ · 100 %$/),
    ]);
    // The plan, the question and its answer, then what was made; nothing of what went on is left.
    expect(text).toMatch(/to do {3}install the wheels of \d+ requirements of requirements\.lock\n/);
    const [, made = ''] = text.split('Do this? [y/N] ');
    expect(made.split('\n')).toEqual([
      'y',
      expect.stringMatching(/^prepared · escrow-sandbox:\S+ · \d+ MB · \d+\.\d s$/),
      expect.stringMatching(/^python {5}\d+\.\d s · 5 fetched · [\d.]+ MB downloaded · \d+ files, [\d.]+ MB$/),
      expect.stringMatching(/^executor {3}\d+\.\d s$/),
      '',
    ]);
    expect((await cli('image', 'plan', 'task.contract.jsonc')).value).toMatchObject({ state: 'ready' });
  });
});
