import path from 'node:path';
import { EscrowError } from '../../protocol/errors.ts';
import type { ImagePlan, ImageStepResult } from '../../protocol/images.ts';
import { installNpm } from '../dependencies/install-npm.ts';
import { installPython } from '../dependencies/install-python.ts';
import { readNpmLock } from '../dependencies/npm-lock.ts';
import { cancelled } from '../dependencies/package-client.ts';
import { refuseOnBuild, refuseUnfit } from '../sandbox/base-fit.ts';
import { dependenciesDigest, packPackages, type InstalledPackages } from '../sandbox/dependency-layer.ts';
import type { ContainerEngine } from '../sandbox/engine.ts';
import { EngineFault } from '../sandbox/engine-fault.ts';
import { baseRepository, findBase, registryBase, stepsDigest, type FoundBase } from '../sandbox/image.ts';
import { readPlatform } from '../sandbox/image-platform.ts';
import {
  fileIdentity,
  prepareImage,
  withFileContainer,
  type MadeStep,
  type PreparedImage,
} from '../sandbox/image-preparation.ts';
import { runOpaqueSteps } from '../sandbox/opaque-steps.ts';
import { packageBytes, stepBytes, type ImageTarget } from './image-plan.ts';
import { fetchSandboxNode, type SandboxNode } from './sandbox-node.ts';

/** How far a preparation is: what it does, to what, and the share that is done in percent. */
export type Progress = (code: string, detail: string, percent: number | null) => void;

interface PreparationDeps {
  readonly executorPath: string;
  /** Folder for what is kept between preparations. */
  readonly cache: string;
  /** Whose containers and images it makes. */
  readonly homeId: string;
}

/**
 * One preparation on its way, with what each step took: what is missing is fetched and installed, then the image is made.
 * Works in a folder that its owner takes away; throws EngineFault and EscrowError PreparationFailed, Cancelled.
 */
export class Preparation {
  readonly results: ImageStepResult[] = [];
  readonly #engine: ContainerEngine;
  readonly #deps: PreparationDeps;
  readonly #target: ImageTarget;
  readonly #folder: string;
  readonly #signal: AbortSignal;
  readonly #progress: Progress;

  constructor(
    engine: ContainerEngine,
    deps: PreparationDeps,
    target: ImageTarget,
    folder: string,
    signal: AbortSignal,
    progress: Progress,
  ) {
    this.#engine = engine;
    this.#deps = deps;
    this.#target = target;
    this.#folder = folder;
    this.#signal = signal;
    this.#progress = progress;
  }

  async run(
    plan: Pick<ImagePlan, 'base' | 'steps'>,
    found: SandboxNode | null,
    architecture: 'amd64' | 'arm64',
  ): Promise<PreparedImage & { readonly node: string }> {
    const { wanted } = this.#target;
    if (plan.base.digest === null) await this.#pull(plan.base.reference);
    const base = await findBase(this.#engine, wanted);
    if (base === undefined)
      throw new EngineFault('not-found', `${plan.base.reference} is not there after it was pulled`);
    // A base that was there is refused with the plan; what was pulled can be looked at only now.
    refuseOnBuild(base);
    const node = found ?? (await this.#fetchNode(architecture));
    const missing = plan.steps.some(({ kind, cached }) => (kind === 'npm' || kind === 'python') && !cached);
    const installed = missing ? await this.#install(base, node.nodePath) : null;
    const steps = stepsDigest(wanted.steps);
    const locks = [wanted.dependencies?.npm?.lock.path, wanted.dependencies?.python?.lock.path];
    const parts: Readonly<Record<MadeStep['kind'], { code: string; detail: string; percent: number }>> = {
      flatten: { code: 'flatten', detail: base.reference, percent: 50 },
      opaque: { code: 'opaque', detail: base.reference, percent: 60 },
      dependencies: { code: 'pack', detail: locks.filter((one) => one !== undefined).join(', '), percent: 75 },
      executor: { code: 'executor', detail: base.reference, percent: 95 },
    };
    const made = await prepareImage(this.#engine, {
      base: base.id,
      ...node,
      executorPath: this.#deps.executorPath,
      homeId: this.#deps.homeId,
      dependencies:
        wanted.dependencies === null
          ? null
          : {
              digest: dependenciesDigest(wanted.dependencies),
              write: (layer) => {
                // The layer was there when the plan was made; somebody has taken it away since.
                if (installed === null) throw new EngineFault('not-found', 'the layer of packages is gone');
                this.#check();
                return packPackages(layer, installed, packageBytes);
              },
            },
      steps: steps === null ? null : { digest: steps, over: (flat) => this.#opaque(flat) },
      log: (_message, part) => {
        this.#check();
        const { code, detail, percent } = parts[part];
        this.#progress(code, detail, percent);
      },
    });
    for (const { kind, ms, packed } of made.steps) {
      if (kind === 'dependencies') {
        const last = this.results.findLast((one) => one.kind === 'npm' || one.kind === 'python');
        if (last !== undefined && packed !== null)
          Object.assign(last, { files: packed.files, bytes: packed.bytes, tree: packed.tree });
        continue;
      }
      this.#result({ kind, ms });
    }
    return { ...made, node: await fileIdentity(node.nodePath, node.nodeVersion) };
  }

  async #fetchNode(architecture: 'amd64' | 'arm64'): Promise<SandboxNode> {
    this.#progress('node', '', 7);
    const started = performance.now();
    const { node, downloadedBytes } = await fetchSandboxNode(
      this.#deps.cache,
      architecture,
      this.#folder,
      this.#signal,
    );
    this.#result({ kind: 'node', ms: performance.now() - started, artefacts: 1, downloadedBytes });
    return node;
  }

  async #pull(reference: string): Promise<void> {
    this.#progress('pull', reference, 5);
    const started = performance.now();
    try {
      await this.#engine.images.pull(reference, this.#signal);
    } catch (error) {
      this.#check();
      if (!EngineFault.is(error) || error.kind === 'unreachable') throw error;
      throw new EscrowError(
        'PreparationFailed',
        `${reference} could not be pulled (${error.message}).`,
        'Check the name, and that the container engine reaches the registry: docker pull says more. Or name another base.',
        { reference },
      );
    }
    // Found as the default base from now on.
    if (reference === registryBase && this.#target.wanted.base === null) {
      await this.#engine.images.tag(reference, baseRepository, 'registry');
    }
    this.#result({ kind: 'pull', ms: performance.now() - started, artefacts: 1 });
  }

  /** On this machine, into the temporary folder. The containers that run contracts have no network, and never get one. */
  async #install(base: FoundBase, nodePath: string): Promise<InstalledPackages> {
    const { wanted, files } = this.#target;
    const { architecture } = base;
    const platform = await withFileContainer(this.#engine, base.id, { owner: this.#deps.homeId }, async (id) => {
      // Before anything is downloaded for it.
      await refuseUnfit(this.#engine, id, base, nodePath);
      return readPlatform(this.#engine, id, architecture);
    });
    if (platform === null) throw new EngineFault('unsupported', `packages for ${architecture} are not supported`);
    const fileOf = (at: { readonly path: string }) => {
      const bytes = files.get(at.path as never);
      if (bytes === undefined) throw new Error(`${at.path} was not handed in`);
      return { path: at.path, bytes };
    };
    const { npm, python } = wanted.dependencies ?? {};
    let npmTree: InstalledPackages['npm'] = null;
    let pythonTree: InstalledPackages['python'] = null;
    if (npm !== undefined) {
      this.#progress('npm', npm.lock.path, 10);
      const started = performance.now();
      const lock = fileOf(npm.lock);
      const read = readNpmLock(Buffer.from(lock.bytes).toString('utf8'));
      if (!read.ok) throw new Error(read.reason);
      const tree = await installNpm({
        folder: path.join(this.#folder, 'npm'),
        lock,
        manifests: npm.manifests.map(fileOf),
        platform,
        signal: this.#signal,
      });
      npmTree = { tree, lockFolder: path.posix.dirname(npm.lock.path), members: read.lock.members };
      this.#result({ kind: 'npm', ms: performance.now() - started, artefacts: null });
    }
    if (python !== undefined) {
      this.#progress('python', python.lock.path, 45);
      const started = performance.now();
      const { tree, wheels } = await installPython({
        folder: path.join(this.#folder, 'python'),
        lock: fileOf(python.lock),
        platform,
        signal: this.#signal,
      });
      pythonTree = { tree };
      const downloadedBytes = wheels.reduce((sum, { bytes }) => sum + bytes, 0);
      this.#result({ kind: 'python', ms: performance.now() - started, artefacts: wheels.length, downloadedBytes });
    }
    return { npm: npmTree, python: pythonTree };
  }

  async #opaque(image: string): Promise<readonly string[]> {
    const { steps } = this.#target.wanted;
    return runOpaqueSteps({
      engine: this.#engine,
      image,
      steps,
      preparer: this.#deps.homeId,
      folder: this.#folder,
      maxBytes: stepBytes,
      signal: this.#signal,
      onStep: (index) => this.#progress('opaque', steps[index]?.argv.join(' ').slice(0, 200) ?? '', 60),
    });
  }

  #result(found: Pick<ImageStepResult, 'kind' | 'ms'> & Partial<ImageStepResult>): void {
    const empty = { made: true, artefacts: null, downloadedBytes: null, files: null, bytes: null, tree: null };
    this.results.push({ ...empty, ...found, ms: Math.round(found.ms) });
  }

  #check(): void {
    if (this.#signal.aborted) throw cancelled();
  }
}
