import { statfs } from 'node:fs/promises';
import path from 'node:path';
import type { FrozenDependencies } from '../../protocol/contract.ts';
import { EscrowError } from '../../protocol/errors.ts';
import { digestOf } from '../../protocol/hash.ts';
import type { ImageArtefact, ImagePlan, ImageStep } from '../../protocol/images.ts';
import type { RelPath } from '../../protocol/primitives.ts';
import { npmArguments } from '../dependencies/install-npm.ts';
import { pipArguments } from '../dependencies/install-python.ts';
import { readNpmLock } from '../dependencies/npm-lock.ts';
import { readPythonLock } from '../dependencies/python-lock.ts';
import { refuseOnBuild } from '../sandbox/base-fit.ts';
import type { ContainerEngine } from '../sandbox/engine.ts';
import { dependenciesDigest } from '../sandbox/dependency-layer.ts';
import { baseReference, findBase, imageKey, registryBase, shippedExecutor, stepsDigest } from '../sandbox/image.ts';
import { findImages, newest } from '../sandbox/image-preparation.ts';
import type { ImageWanted } from '../sandbox/port.ts';
import { findSandboxNode, sandboxNodeArtefact, type SandboxNode } from './sandbox-node.ts';

/** What preparation is for: what is wanted, and the lock files and manifests that it is made from. */
export interface ImageTarget {
  readonly wanted: ImageWanted;
  readonly files: ReadonlyMap<RelPath, Uint8Array>;
}

export interface PlanSources {
  readonly engine: ContainerEngine;
  readonly executorPath: string;
  /** Folder for what is kept between preparations. */
  readonly cache: string;
  readonly temporary: string;
}

const mebibyte = 1024 * 1024;
/** More of packages than this is refused: several times a large front end with its tools. */
export const packageBytes = 2048 * mebibyte;
/** What steps of a contract may write together: several times a language's tools with their libraries. */
export const stepBytes = 2048 * mebibyte;
/** A base of which nobody says how large it is before it was fetched. */
const unknownBaseBytes = 2048 * mebibyte;

export interface Planned {
  readonly plan: Omit<ImagePlan, 'approval' | 'image'> & {
    readonly image: { reference: string; digest: string } | null;
  };
  readonly node: SandboxNode | null;
  readonly architecture: 'amd64' | 'arm64';
}

/**
 * What preparing would do: what is there, what would be fetched or run. Asks the engine and this machine, reaches for no
 * network, changes nothing. Throws EscrowError ImageUnavailable, DependenciesUnusable; EngineFault.
 */
export async function planImage(target: ImageTarget, sources: PlanSources): Promise<Planned> {
  const { wanted } = target;
  const { engine } = sources;
  const executor = await shippedExecutor(sources.executorPath);
  const architecture = architectureOf((await engine.version()).architecture);
  const base = await findBase(engine, wanted);
  if (base === undefined && wanted.pinned !== null) {
    throw new EscrowError(
      'ImageUnavailable',
      'The base image that this contract was frozen with is not in the container engine any more.',
      'Freeze the contract again to take what its base stands for now.',
      { pinned: wanted.pinned },
    );
  }
  if (base !== undefined) refuseOnBuild(base);
  const reference = base?.reference ?? baseReference(wanted) ?? registryBase;
  const key = base === undefined ? null : imageKey(wanted, base.id, executor);
  const prepared = key === null ? undefined : newest(await findImages(engine, 'prepared', key, null));
  const ready = prepared !== undefined;
  const packagesThere =
    ready || (key !== null && newest(await findImages(engine, 'dependencies', key, null)) !== undefined);
  const flatThere = ready || (key !== null && newest(await findImages(engine, 'flat', key, null)) !== undefined);
  const node = await findSandboxNode(sources.cache, architecture);

  const step = (kind: ImageStep['kind'], where: ImageStep['where'], more: Partial<ImageStep>): ImageStep => ({
    kind,
    where,
    cached: ready,
    network: false,
    argv: null,
    subject: '',
    artefacts: [],
    sources: [],
    ...more,
  });
  const steps: ImageStep[] = [];
  if (node === null) {
    const artefact = sandboxNodeArtefact(architecture);
    const argv = ['npm', 'pack', `${artefact.name}@${artefact.version}`, '--ignore-scripts'];
    steps.push(step('node', 'host', { network: true, argv, subject: artefact.name, artefacts: [artefact] }));
  }
  if (base === undefined) {
    const artefact: ImageArtefact = {
      kind: 'base',
      name: reference,
      version: '',
      hashes: digestIn(reference),
      sizeBytes: null,
    };
    steps.push(
      step('pull', 'engine', {
        network: true,
        subject: reference,
        artefacts: [artefact],
        sources: [registryOf(reference)],
      }),
    );
  }
  steps.push(step('flatten', 'engine', { cached: flatThere, subject: reference }));
  for (const { argv, network } of wanted.steps) {
    steps.push(step('opaque', 'container', { cached: flatThere, network, argv: [...argv], subject: argv[0] ?? '' }));
  }
  const { npm, python } = wanted.dependencies ?? {};
  if (npm !== undefined) steps.push(step('npm', 'host', { cached: packagesThere, ...npmStep(npm, target.files) }));
  if (python !== undefined)
    steps.push(step('python', 'host', { cached: packagesThere, ...pythonStep(python, target.files) }));
  steps.push(step('executor', 'engine', { subject: executor }));

  const open = steps.filter(({ cached }) => !cached);
  const artefacts = open.flatMap((one) => one.artefacts);
  const has = (kind: ImageStep['kind']): boolean => open.some((one) => one.kind === kind);
  const unknown = [
    ...(has('node') ? ['node_size'] : []),
    ...(has('pull') ? ['base_size'] : []),
    ...(has('npm') ? ['npm_sizes'] : []),
    ...(has('python') ? ['python_sizes'] : []),
    ...(has('opaque') ? ['step_effects'] : []),
  ];
  const reserved =
    (has('pull') ? unknownBaseBytes : 0) +
    // As they leave it, and once more in the flat image.
    (has('opaque') ? 2 * stepBytes : 0) +
    (has('flatten') ? (base?.sizeBytes ?? unknownBaseBytes) : 0) +
    // On this machine while they are installed, and in the engine afterwards.
    (has('npm') ? packageBytes : 0) +
    (has('python') ? packageBytes : 0);
  const plan = {
    plan: digestOf({
      base: { reference, id: base?.id ?? null },
      dependencies: wanted.dependencies === null ? null : dependenciesDigest(wanted.dependencies),
      steps: stepsDigest(wanted.steps),
      node: node?.nodeVersion ?? sandboxNodeArtefact(architecture).hashes,
    }),
    state: ready ? ('ready' as const) : ('needed' as const),
    base: {
      reference,
      digest: base?.id ?? null,
      source:
        wanted.base !== null
          ? ('contract' as const)
          : baseReference(wanted) !== null
            ? ('language' as const)
            : ('default' as const),
      sizeBytes: base?.sizeBytes ?? null,
    },
    steps,
    downloadBytes: artefacts.reduce((sum, { sizeBytes }) => sum + (sizeBytes ?? 0), 0),
    reservedBytes: ready ? 0 : reserved,
    // The folder itself is made when it is needed.
    freeBytes: await freeBytes(path.dirname(sources.temporary)),
    mayStand: wanted.steps.length === 0,
    image: prepared === undefined ? null : { reference: prepared.tags[0] ?? prepared.id, digest: prepared.id },
    unknown,
  };
  return { plan, node, architecture };
}

function architectureOf(text: string): 'amd64' | 'arm64' {
  if (text === 'amd64' || text === 'x86_64') return 'amd64';
  if (text === 'arm64' || text === 'aarch64') return 'arm64';
  throw new EscrowError(
    'ImageUnavailable',
    `Sandboxes are not supported on ${text}.`,
    'Use a container engine on x86-64 or 64-bit ARM.',
  );
}

function textOf(files: ImageTarget['files'], path: RelPath): string {
  const bytes = files.get(path);
  if (bytes === undefined) throw new Error(`${path} was not handed in`);
  return Buffer.from(bytes).toString('utf8');
}

function npmStep(npm: NonNullable<FrozenDependencies['npm']>, files: ImageTarget['files']): Partial<ImageStep> {
  const read = readNpmLock(textOf(files, npm.lock.path));
  if (!read.ok) throw unusable(`${npm.lock.path} can't be used: ${read.reason}.`);
  const { packages } = read.lock;
  const hosts = new Set(packages.flatMap(({ resolved }) => (resolved === null ? [] : [new URL(resolved).host])));
  return {
    network: true,
    argv: ['npm', ...npmArguments],
    subject: npm.lock.path,
    artefacts: packages.map(({ name, version, integrity }) => ({
      kind: 'npm',
      name,
      version,
      hashes: integrity.split(/\s+/),
      sizeBytes: null,
    })),
    // npm asks its own registry instead of the public one that a lock names, so both are told.
    sources: ['npm-configuration', ...hosts],
  };
}

function pythonStep(
  python: NonNullable<FrozenDependencies['python']>,
  files: ImageTarget['files'],
): Partial<ImageStep> {
  const read = readPythonLock(textOf(files, python.lock.path));
  if (!read.ok) throw unusable(`${python.lock.path}, ${read.reason}.`);
  return {
    network: true,
    argv: ['python3', '-I', '-m', 'pip', ...pipArguments, '-r', python.lock.path],
    subject: python.lock.path,
    artefacts: read.requirements.map(({ name, version, hashes }) => ({
      kind: 'python',
      name,
      version,
      hashes: [...hashes],
      sizeBytes: null,
    })),
    sources: ['pip-configuration'],
  };
}

function digestIn(reference: string): string[] {
  const digest = /@(sha256:[0-9a-f]{64})$/.exec(reference)?.[1];
  return digest === undefined ? [] : [digest];
}

/** The host that an engine asks for a name; the engine may have another in its own configuration. */
function registryOf(reference: string): string {
  const first = reference.split('/')[0] ?? '';
  return reference.includes('/') && /[.:]|^localhost$/.test(first) ? first : 'engine-configuration';
}

async function freeBytes(folder: string): Promise<number | null> {
  try {
    const { bavail, bsize } = await statfs(folder);
    return bavail * bsize;
  } catch {
    return null;
  }
}

function unusable(message: string): EscrowError {
  return new EscrowError('DependenciesUnusable', message, 'Mend it and freeze the contract again.');
}
