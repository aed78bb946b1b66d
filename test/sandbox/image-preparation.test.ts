// From lock files to an image with packages: what is shown, what a yes does, what a no leaves, and that nothing but the
// lock files and manifests takes part (adversarial 64).
import { existsSync } from 'node:fs';
import { randomBytes } from 'node:crypto';
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { Readable } from 'node:stream';
import { pack } from 'tar-stream';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { ImagePlan } from '../../src/protocol/images.ts';
import type { ContractDigest } from '../../src/protocol/primitives.ts';
import { progressWords } from '../../src/extension/progress-words.ts';
import { fetchSandboxNode, findSandboxNode } from '../../src/server/image/sandbox-node.ts';
import { engineHere } from '../../scripts/lib/engine-here.ts';
import { imageRepository, replacement, type ImageRepository } from '../fixtures/image-repository.ts';
import { sessionAt, settled, startSession, verified, writeScript } from '../fixtures/journey.ts';
import { startTestKernel, type TestKernel } from '../fixtures/kernel.ts';
import { knownHome } from '../fixtures/known-home.ts';
import { ensureSandboxImage } from '../fixtures/sandbox.ts';
import { words } from '../fixtures/window-state.ts';
import { fullRun, leftOut } from '../fixtures/left-out.ts';

/** What fetches tens of megabytes more. */
const engine = engineHere();
const yes = { reviewer: { name: 'test', channel: 'script' as const }, standing: false };

/** What preparations of a home left in the engine: images and containers. */
async function leftovers(homeId: string): Promise<readonly string[]> {
  const images = (await engine.images.list(['escrow.product=escrow'])).filter(
    ({ labels }) => labels['escrow.home'] === homeId || labels['escrow.owner'] === homeId,
  );
  const containers = await engine.list([`escrow.owner=${homeId}`]);
  return [...images.map(({ id }) => id), ...containers.map(({ name }) => name)];
}

describe('a contract with packages of npm and of Python', () => {
  let kernel: TestKernel;
  let repo: ImageRepository;
  let digest: ContractDigest;
  let homeId: string;
  const temporaries = (): Promise<readonly string[]> => readdir(path.join(kernel.home, 'preparing')).catch(() => []);
  const plan = (): Promise<ImagePlan> => kernel.kernel.call('image/plan', { digest });

  beforeAll(async () => {
    await ensureSandboxImage();
    const known = await knownHome();
    homeId = known.homeId;
    kernel = await startTestKernel({ home: known.home });
    const lock = await readFile(path.join(import.meta.dirname, '../fixtures/locks/small/requirements.lock'), 'utf8');
    repo = await imageRepository(
      'small',
      {
        // A lock of this run alone: an image that another run made (or left) is not this one's.
        'requirements.lock': `${lock}# run ${randomBytes(8).toString('hex')}\n`,
        // Nothing of these may take part: neither on this machine nor in the image.
        '.npmrc': 'registry=http://127.0.0.1:1/\nignore-scripts=false\n',
        'pip.conf': '[global]\nindex-url = http://127.0.0.1:1/\n',
        'setup.py': 'open("canary", "w")\n',
        'conftest.py': 'import pathlib\nassert pathlib.Path.cwd() == pathlib.Path("/workspace")\n',
        'hidden/check.py': 'print("hidden")\n',
        'packages/greet/index.js': "import ms from 'ms';\nexport const greet = () => `in ${ms(61_000)}`;\n",
        'src/greeting/__init__.py': 'def greeting():\n    return "hello"\n',
        'tests/test_greeting.py':
          'from greeting import greeting\n\n\ndef test_greeting():\n    assert greeting() == "hello, world"\n',
        'show.js':
          "import { greet } from '@small/greet';\nimport colors from 'picocolors';\nconsole.log(greet(), typeof colors.red);\n",
      },
      {
        title: 'Greet the world',
        instruction: 'Greet the world.',
        writable: ['src/greeting/__init__.py'],
        scratch: ['.pytest_cache', 'node_modules/.cache'],
        acceptance: [
          { id: 'greeting', argv: ['pytest', '-v'], baseline: 'fail' },
          { id: 'modules', argv: ['node', 'show.js'], baseline: 'pass' },
          {
            id: 'scratch',
            argv: ['node', '-e', "require('fs').writeFileSync('node_modules/.cache/x', 'x')"],
            baseline: 'pass',
          },
        ],
        supplemental: [{ path: 'hidden/check.py', argv: ['python3', 'hidden/check.py'] }],
        image: { dependencies: { npm: 'package-lock.json', python: 'requirements.lock' } },
      },
    );
    ({ digest } = await kernel.kernel.call('contract/freeze', { path: repo.contract }));
  });
  afterAll(async () => {
    await kernel.dispose();
    await repo.dispose();
  });

  it('fixes its base when it is frozen, and says what preparing would do', async () => {
    const frozen = await kernel.kernel.call('contract/get', { digest });
    expect(frozen.base?.digest).toMatch(/^sha256:[0-9a-f]{64}$/);
    const shown = await plan();
    expect(shown).toMatchObject({ state: 'needed', approval: null, mayStand: true, image: null });
    const step = (kind: string) => shown.steps.find((one) => one.kind === kind);
    expect(step('npm')).toMatchObject({ where: 'host', network: true, cached: false, subject: 'package-lock.json' });
    expect(step('npm')?.argv).toContain('--ignore-scripts');
    expect(step('npm')?.artefacts.map(({ name, version }) => `${name}@${version}`)).toEqual([
      'ms@2.1.3',
      'picocolors@1.1.1',
    ]);
    expect(step('python')?.argv).toContain('--require-hashes');
    expect(step('python')?.artefacts.map(({ name }) => name)).toContain('pytest');
    expect(shown.unknown).toEqual(expect.arrayContaining(['npm_sizes', 'python_sizes']));
  });

  it('does nothing without a yes to exactly that, and a no leaves nothing', async () => {
    const { plan: id } = await plan();
    const prepare = kernel.kernel.call('image/prepare', { digest, plan: id, approval: null });
    await expect(prepare).rejects.toMatchObject({ code: 'ImageNotApproved' });
    const other = kernel.kernel.call('image/prepare', { digest, plan: 'f'.repeat(64), approval: yes });
    await expect(other).rejects.toMatchObject({ code: 'ImageChanged' });
    await kernel.kernel.call('image/decline', { plan: id, reviewer: yes.reviewer });
    await expect(kernel.kernel.call('contract/baseline', { digest })).rejects.toMatchObject({
      code: 'ImageUnavailable',
      next: expect.stringContaining('image prepare'),
    });
    expect(
      (await engine.images.list(['escrow.product=escrow'])).filter(
        ({ labels }) => 'escrow.dependencies' in labels && labels['escrow.home'] === homeId,
      ),
    ).toEqual([]);
    expect(await temporaries()).toEqual([]);
  });

  it('leaves nothing when it is cancelled on the way', async () => {
    const { plan: id } = await plan();
    const cancel = new AbortController();
    const prepare = kernel.kernel.call(
      'image/prepare',
      { digest, plan: id, approval: yes },
      { signal: cancel.signal, onProgress: ({ code }) => code === 'npm' && cancel.abort() },
    );
    await expect(prepare).rejects.toMatchObject({ code: 'Cancelled' });
    expect(await temporaries()).toEqual([]);
    expect((await plan()).state).toBe('needed');
  });

  it('[64+] is prepared after a yes, measured, and recorded', async () => {
    const { plan: id } = await plan();
    const row: string[] = [];
    const { plan: after, record } = await kernel.kernel.call(
      'image/prepare',
      { digest, plan: id, approval: { ...yes, standing: true } },
      { onProgress: (progress) => row.push(progressWords(progress, words.t)) },
    );
    // What the window's row says meanwhile.
    expect(row).toEqual([
      'Waits for its turn',
      '10 % · npm packages of package-lock.json',
      '45 % · Python packages of requirements.lock',
      '75 % · The layer with the packages of package-lock.json, requirements.lock',
      '95 % · The executor of Escrow',
      '100 % · Done',
    ]);
    expect(after).toMatchObject({ state: 'ready', image: { digest: record?.image } });
    expect(record).toMatchObject({ plan: id, approval: { by: 'test', channel: 'script', standing: true } });
    const python = record?.steps.find(({ kind }) => kind === 'python');
    // Of six requirements five are for this platform.
    expect(python).toMatchObject({ made: true, artefacts: 5 });
    expect(python?.downloadedBytes).toBeGreaterThan(1_000_000);
    expect(python?.tree).toMatch(/^[0-9a-f]{64}$/);
    const image = await engine.images.inspect(record?.image ?? '');
    expect(image?.Config.Labels?.['escrow.home']).toBe(homeId);
    expect(image?.Size).toBe(record?.sizeBytes);
    expect(image?.Config.Labels?.['escrow.dependencies']).toBe(record?.dependencies);
    for (const file of ['canary', path.join('..', 'canary')])
      expect(existsSync(path.join(repo.root, file))).toBe(false);
    expect(await temporaries()).toEqual([]);
    expect(await engine.list([`escrow.owner=${homeId}`])).toEqual([]);
  });

  it('[64+] has nothing of the repository in the image but what the packages are', async () => {
    const { image } = await plan();
    const handle = await engine.create({
      Image: image?.digest ?? '',
      Cmd: ['x'],
      Labels: { 'escrow.product': 'escrow', 'escrow.image': 'preparation' },
    });
    try {
      const archive = await engine.getFiles(handle, '/deps');
      let text = '';
      for await (const part of archive ?? []) text += (part as Buffer).toString('latin1');
      const names = [...text.matchAll(/deps\/[\x21-\x7e]*/g)].map(([name]) => name);
      expect(names).toContain('deps/venv/bin/pytest');
      for (const stray of [
        '.npmrc',
        'setup.py',
        'conftest.py',
        'hidden',
        'check.py',
        'show.js',
        'pip.conf',
        'greet/index.js',
        'deps/package-lock',
        'deps/package.json',
        'greet/package.json',
      ]) {
        expect(names.filter((name) => name.includes(stray) && !name.includes('site-packages'))).toEqual([]);
      }
      expect(text).not.toContain(kernel.home);
    } finally {
      await engine.remove(handle);
    }
  });

  it('needs nothing the second time', async () => {
    const { plan: id } = await plan();
    const again = await kernel.kernel.call('image/prepare', { digest, plan: id, approval: null });
    expect(again.plan.steps.every(({ cached }) => cached)).toBe(true);
    expect(again.record?.image).toBe(again.plan.image?.digest);
  });

  it('goes from baseline to a verified candidate with its packages, and the binding names the record', async () => {
    const baseline = await kernel.kernel.call('contract/baseline', { digest });
    expect(
      baseline.checks.map(({ id, verdict, strength, tail }) => [id, verdict, strength, tail.includes('in 1m')]),
    ).toEqual([
      ['greeting', 'fail', 'summary', false],
      ['modules', 'pass', 'exit-code', true],
      ['scratch', 'pass', 'exit-code', false],
    ]);
    expect(baseline.result).toBe('discriminates');
    const script = await writeScript(
      kernel.home,
      'greet',
      replacement('src/greeting/__init__.py', '"hello"', '"hello, world"'),
    );
    const { session } = await startSession(kernel.kernel, digest, script);
    await sessionAt(kernel.kernel, session.id, 'settled', settled);
    const view = await sessionAt(kernel.kernel, session.id, 'verified', verified);
    expect(view.attempts[0]).toMatchObject({ outcome: { kind: 'candidate' }, collection: { state: 'complete' } });
    expect(view.candidates[0]?.verdict).toBe('passed');
    const { image } = await plan();
    expect(view.binding.image).toMatchObject({ digest: image?.digest, record: image?.record });
    // What a session is bound to is not pruned.
    const kept = await kernel.kernel.call('image/prune', { preview: true, all: true });
    expect(kept.kept.find(({ id }) => id === image?.digest)?.kept).toBe('session');
  });

  it('counts shared layers once and removes exactly its own', async () => {
    const list = await kernel.kernel.call('image/list', {});
    const sum = list.images.reduce((total, { sizeBytes }) => total + sizeBytes, 0);
    expect(list.totalBytes).toBeLessThan(sum);
    expect(list.unknown).toContain('engine_overhead');
    const { sessions } = await kernel.kernel.call('session/list', {});
    const session = sessions[0];
    if (session === undefined) throw new Error('no session');
    const { token } = await kernel.kernel.call('session/attach', {
      session: session.id,
      mode: 'control',
      takeOver: true,
    });
    if (token === null) throw new Error('no token');
    await kernel.kernel.call('session/close', { session: session.id, token });
    const preview = await kernel.kernel.call('image/prune', { preview: true, all: true });
    expect(preview).toMatchObject({ done: false, failed: [] });
    expect(preview.removed.every(({ owner }) => owner === 'this-home')).toBe(true);
    expect(preview.removed.map(({ kind }) => kind).toSorted()).toEqual(
      expect.arrayContaining(['dependencies', 'prepared']),
    );
    // A preview takes nothing away. Only our own images are looked at: others use this engine, too.
    const there = new Set((await engine.images.list([])).map(({ id }) => id));
    expect(preview.removed.filter(({ id }) => !there.has(id))).toEqual([]);
    const done = await kernel.kernel.call('image/prune', { preview: false, all: true });
    expect(done).toMatchObject({ done: true, failed: [], freedBytes: preview.freedBytes });
    expect(done.removed.map(({ id }) => id)).toEqual(preview.removed.map(({ id }) => id));
    // What was to be kept is kept: an engine may take away more than it was told to. Other homes remove theirs meanwhile.
    const still = new Set((await engine.images.list([])).map(({ id }) => id));
    const known = done.kept.filter(({ id, owner }) => owner !== 'another-home' && there.has(id));
    expect(known.filter(({ id }) => !still.has(id))).toEqual([]);
    expect(await leftovers(homeId)).toEqual([]);
    expect((await plan()).state).toBe('needed');
    // The standing yes holds for exactly this: no further question.
    expect((await plan()).approval).toMatchObject({ standing: true, by: 'test' });
  });
});

describe('a base that is named by a tag', () => {
  it('is what the tag stood for at the freeze, whatever it stands for later', async () => {
    const kernel = await startTestKernel();
    // A host of our own that nothing listens at: the engine is not asked to look further than this machine.
    const reference = `127.0.0.1:1/escrow-test-${randomBytes(6).toString('hex')}:1`;
    const made: string[] = [];
    const tagged = async (text: string): Promise<string> => {
      const archive = pack();
      archive.entry({ name: 'etc/version', mode: 0o644 }, text);
      archive.finalize();
      // A label of its own: not one of Escrow's images.
      const id = await engine.images.import(Readable.from(archive), { 'escrow.test': 'tag' }, reference);
      made.push(id);
      return id;
    };
    const repo = await imageRepository(
      null,
      { 'a.txt': '1\n' },
      {
        title: 'T',
        instruction: 'I',
        writable: ['a.txt'],
        acceptance: [{ id: 'c', argv: ['false'], baseline: 'fail' }],
        image: { base: reference },
      },
    );
    try {
      const before = await kernel.kernel.call('contract/freeze', { path: repo.contract });
      // Nothing is there yet: pulling it would be part of the plan.
      expect(before.base).toEqual({ reference, digest: null });
      const wanted = await kernel.kernel.call('image/plan', { digest: before.digest });
      expect(wanted.steps[0]).toMatchObject({ kind: 'pull', network: true, subject: reference, cached: false });
      expect(wanted.unknown).toContain('base_size');

      const approval = { reviewer: { name: 'test', channel: 'script' as const }, standing: false };
      // Nobody has an image of this name.
      await expect(
        kernel.kernel.call('image/prepare', { digest: before.digest, plan: wanted.plan, approval }),
      ).rejects.toMatchObject({ code: 'PreparationFailed', message: expect.stringContaining('could not be pulled') });
      expect(await readdir(path.join(kernel.home, 'preparing'))).toEqual([]);

      const first = await tagged('first');
      const frozen = await kernel.kernel.call('contract/freeze', { path: repo.contract });
      // The same contract on every machine; what its base is here is a fact of the freeze.
      expect(frozen.digest).toBe(before.digest);
      expect(frozen.base).toEqual({ reference, digest: first });
      expect(frozen.contract.imageBase).toBe(reference);

      const second = await tagged('second');
      expect(second).not.toBe(first);
      expect((await kernel.kernel.call('image/plan', { digest: frozen.digest })).base.digest).toBe(first);
      const again = await kernel.kernel.call('contract/freeze', { path: repo.contract });
      expect(again.base?.digest).toBe(second);
      expect((await kernel.kernel.call('image/plan', { digest: frozen.digest })).base.digest).toBe(second);
      for (const id of made.splice(0)) await engine.images.remove(id);
      await expect(kernel.kernel.call('image/plan', { digest: frozen.digest })).rejects.toMatchObject({
        code: 'ImageUnavailable',
        next: expect.stringContaining('Freeze'),
      });
    } finally {
      for (const id of made) await engine.images.remove(id);
      await kernel.dispose();
      await repo.dispose();
    }
  });
});

describe('the Node of sandboxes', () => {
  it('is one that is at hand and has its libraries inside', async () => {
    const nowhere = path.join(os.tmpdir(), 'escrow-nowhere');
    const found = await findSandboxNode(nowhere, process.arch === 'arm64' ? 'arm64' : 'amd64');
    expect(found).toMatchObject({ nodeVersion: expect.stringMatching(/^v\d+\./) });
    // Of another processor there is none, and it would have to be fetched.
    expect(await findSandboxNode(nowhere, process.arch === 'arm64' ? 'amd64' : 'arm64')).toBeNull();
  });

  it.runIf(fullRun)(`is fetched as a package with a fixed hash where there is none${leftOut.fullRun}`, async () => {
    const folder = await mkdtemp(path.join(os.tmpdir(), 'escrow-test-'));
    try {
      const cache = path.join(folder, 'cache');
      const other = process.arch === 'arm64' ? 'amd64' : 'arm64';
      const { node, downloadedBytes } = await fetchSandboxNode(cache, other, folder, new AbortController().signal);
      expect(downloadedBytes).toBeGreaterThan(20_000_000);
      expect(await findSandboxNode(cache, other)).toEqual(node);
      // ELF, for that processor: 62 is x86-64, 183 is AArch64.
      const head = (await readFile(node.nodePath)).subarray(0, 20);
      expect([head.subarray(1, 4).toString(), head.readUInt16LE(18)]).toEqual(['ELF', other === 'arm64' ? 183 : 62]);
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  });
});
