import { ensureBaseImage, ensurePreparedImage } from '../base-image.ts';
import { ensureBrowser, ensureServerBuild } from '../setup-workbench.ts';
import { bundle } from './bundle.ts';
import { ensureDebianPackages, isDebian } from './debian.ts';
import { ensureEngine } from './engine.ts';
import { ensureLlamaServer } from './llama-server.ts';
import { run } from './run.ts';
import { SetupError, type Ui } from './ui.ts';

export interface SetUpParts {
  /** A container engine that answers, the base image and the image with the executor. */
  readonly engine: boolean;
  /** A base image of one's own, already in the engine; the default base otherwise. */
  readonly base?: string | undefined;
  /** Podman beside it, whose compatible API the sandbox tests use too; only where Debian's packages can bring it. */
  readonly podman?: boolean | undefined;
  /** pip, for tests that prepare images with packages of Python. */
  readonly pip?: boolean;
  /** llama.cpp's server, for tests against a real engine; only where Debian's packages can bring it. */
  readonly llama?: boolean;
  /** VS Code's server build and a browser, for the e2e tests. */
  readonly workbench: boolean;
}

/** Contracts take their files from what git tracks. Throws SetupError. */
async function ensureGit(ui: Ui): Promise<void> {
  const found = await run('git', ['--version']).catch(() => undefined);
  if (found?.code === 0) return;
  if (!(await isDebian()))
    throw new SetupError('git is not installed', 'Install git, then run the same command again.');
  await ensureDebianPackages(['git'], 'contracts take their files from what git tracks', ui);
}

/** Podman with the runtime and the init program that it wants. Where it can't be had, its tests say that they are skipped. */
async function ensurePodman(ui: Ui): Promise<void> {
  if (!(await isDebian())) return;
  try {
    await ensureDebianPackages(['podman', 'runc', 'catatonit', 'uidmap'], 'the sandbox is tested on both engines', ui);
  } catch (error) {
    if (!(error instanceof SetupError)) throw error;
    ui.log(`without Podman: ${error.message}; its tests are skipped`);
  }
}

/** Images with packages of Python are made with this machine's pip. Throws SetupError. */
async function ensurePip(ui: Ui): Promise<void> {
  // Where a Kernel looks, not where this shell does.
  const words = ['PATH=/usr/local/bin:/usr/bin:/bin', 'python3', '-I', '-m', 'pip', '--version'];
  const found = await run('env', words).catch(() => undefined);
  if (found?.code === 0) return;
  if (!(await isDebian()))
    throw new SetupError('Python has no pip', 'Install pip for python3, then run the same command again.');
  await ensureDebianPackages(['python3-pip'], 'fetches the packages of Python that images are made with', ui);
}

/**
 * Brings this machine to where Escrow runs. Idempotent: what is there is only checked. Packages and Node were seen to by
 * `bootstrap.mjs` before this could run. Throws SetupError with what to do.
 */
export async function setUp(ui: Ui, parts: SetUpParts): Promise<void> {
  ui.log(`node ${process.versions.node}, packages as locked`);
  // It comes over the network while a base image is made; what asks a person or holds apt's lock goes one after another.
  const serverBuild = parts.workbench ? ensureServerBuild(ui.log) : Promise.resolve();
  const [engine, workbench] = await Promise.allSettled([setUpSystem(ui, parts), serverBuild]);
  for (const part of [engine, workbench]) if (part.status === 'rejected') throw part.reason;
}

async function setUpSystem(ui: Ui, parts: SetUpParts): Promise<void> {
  await ensureGit(ui);
  if (parts.engine) {
    await ensureEngine(ui);
    // The prepared image is found by the executor's hash, so the executor comes first.
    await bundle('executor', false);
    await ensurePreparedImage(ui, parts.base ?? (await ensureBaseImage(ui)));
  }
  if (parts.podman === true) await ensurePodman(ui);
  if (parts.pip === true) await ensurePip(ui);
  if (parts.llama === true) await ensureLlamaServer(ui);
  if (parts.workbench) await ensureBrowser(ui);
}
