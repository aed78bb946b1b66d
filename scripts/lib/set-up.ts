import { baseQuestions, ensureBaseImage, ensureBaseTools, ensurePreparedImage } from '../base-image.ts';
import { browserQuestions, ensureBrowser, ensureServerBuild } from '../setup-workbench.ts';
import { bundle } from './bundle.ts';
import { ensureDebianPackages, isDebian, packagesQuestions, rootBeforehand, type WantedPackages } from './debian.ts';
import { engineQuestions, ensureEngine } from './engine.ts';
import { ensureLlamaServer, llamaQuestions } from './llama-server.ts';
import { run } from './run.ts';
import { askOnce, failureText, SetupError, type Question, type Ui } from './ui.ts';

export interface SetUpParts {
  /** A container engine that answers, the base image and the image with the executor. */
  readonly engine: boolean;
  /** What the machine settings name as engine; absent: nothing, as in a fresh state folder. */
  readonly engineSetting?: string | null;
  /** A base image of one's own, already in the engine; the default base otherwise. */
  readonly base?: string | undefined;
  /** Podman beside it, whose compatible API the sandbox tests use too; only where Debian's packages can bring it. */
  readonly podman?: boolean | undefined;
  /** pip, for tests that prepare images with packages of Python. */
  readonly pip?: boolean;
  /** strace, for tests in which the disk fails a call; only where Debian's packages can bring it. */
  readonly tracer?: boolean;
  /** llama.cpp's server, for tests against a real engine; only where Debian's packages can bring it. */
  readonly llama?: boolean;
  /** VS Code's server build and a browser, for the e2e tests. */
  readonly workbench: boolean;
}

/** A set-up that has begun: everything was asked. Neither promise needs somebody to wait for it. */
export interface SetUpUnderWay {
  /** What static checks and unit tests need besides packages: git, strace. Rejects with SetupError. */
  readonly basics: Promise<void>;
  /** All of it; settles when nothing works any more. Rejects with the first SetupError. */
  readonly done: Promise<void>;
}

const git: WantedPackages = { names: ['git'], why: 'contracts take their files from what git tracks' };
/** With the runtime and the init program that it wants. */
const podman: WantedPackages = {
  names: ['podman', 'runc', 'catatonit', 'uidmap'],
  why: 'the sandbox is tested on both engines',
};
const tracer: WantedPackages = { names: ['strace'], why: 'tests have the disk fail single calls of a process' };
const pip: WantedPackages = {
  names: ['python3-pip'],
  why: 'fetches the packages of Python that images are made with',
};

const runs = async (program: string, args: readonly string[]): Promise<boolean> =>
  (await run(program, args).catch(() => undefined))?.code === 0;
const gitRuns = (): Promise<boolean> => runs('git', ['--version']);
/** Where a Kernel looks, not where this shell does. */
const pipRuns = (): Promise<boolean> =>
  runs('env', ['PATH=/usr/local/bin:/usr/bin:/bin', 'python3', '-I', '-m', 'pip', '--version']);

async function ensureGit(ui: Ui): Promise<void> {
  if (await gitRuns()) return;
  if (!(await isDebian()))
    throw new SetupError('git is not installed', 'Install git, then run the same command again.');
  await ensureDebianPackages(git, ui);
}

/** What only tests use: where it can't be had, they say that they are left out. */
async function ensureForTests(wanted: WantedPackages, ui: Ui): Promise<void> {
  if (!(await isDebian())) return;
  try {
    await ensureDebianPackages(wanted, ui);
  } catch (error) {
    if (!(error instanceof SetupError)) throw error;
    ui.log(`without ${wanted.names[0] ?? ''}: ${error.message}; its tests are left out`);
  }
}

/** Images with packages of Python are made with this machine's pip. Throws SetupError. */
async function ensurePip(ui: Ui): Promise<void> {
  if (await pipRuns()) return;
  if (!(await isDebian()))
    throw new SetupError('Python has no pip', 'Install pip for python3, then run the same command again.');
  await ensureDebianPackages(pip, ui);
}

/** Everything that these parts would change on this system, in the order of the steps. */
async function foreseen(parts: SetUpParts): Promise<readonly Question[]> {
  const setting = parts.engineSetting ?? null;
  return [
    ...((await gitRuns()) ? [] : await packagesQuestions(git)),
    ...(parts.tracer === true ? await packagesQuestions(tracer) : []),
    ...(parts.engine ? await engineQuestions(setting) : []),
    ...(parts.engine && parts.base === undefined ? await baseQuestions(setting) : []),
    ...(parts.pip !== true || (await pipRuns()) ? [] : await packagesQuestions(pip)),
    ...(parts.workbench ? await browserQuestions() : []),
    ...(parts.podman === true ? await packagesQuestions(podman) : []),
    ...(parts.llama === true ? await llamaQuestions() : []),
  ];
}

/**
 * Brings this machine to where Escrow runs: asks once about everything, then begins. Steps that need one another go in
 * turn, the others side by side, because most of the time is the network's. Idempotent: what is there is only checked.
 * Packages and Node were seen to by `bootstrap.mjs` before this could run. A step that fails is told at once. Throws
 * SetupError with what to do where nothing was begun.
 */
export async function beginSetUp(ui: Ui, parts: SetUpParts): Promise<SetUpUnderWay> {
  ui.log(`node ${process.versions.node}, packages as locked`);
  const questions = await foreseen(parts);
  const agreed = await askOnce(ui, questions);
  if (questions.length > 0) await rootBeforehand('set-up');
  const told = async (work: Promise<void>): Promise<void> => {
    try {
      await work;
    } catch (error) {
      ui.log(`FAILED: ${failureText(error)}`);
      throw error;
    }
  };
  const basics = told(
    ensureGit(agreed).then(() => (parts.tracer === true ? ensureForTests(tracer, agreed) : undefined)),
  );
  const tools = told(basics.then(() => engineAndTools(agreed, parts)));
  const lanes = [
    basics,
    tools,
    told(parts.workbench ? ensureServerBuild(agreed) : Promise.resolve()),
    // What the image is made with comes first of what apt-get brings: making it takes longest.
    told(tools.then(() => images(agreed, parts))),
    told(tools.catch(() => undefined).then(() => packages(agreed, parts))),
  ];
  const done = Promise.allSettled(lanes).then((ended) => {
    for (const lane of ended) if (lane.status === 'rejected') throw lane.reason;
  });
  // Whoever waits for one of them hears of it; the other is then heard by nobody.
  for (const promise of [basics, done]) promise.catch(() => undefined);
  return { basics, done };
}

/** `beginSetUp` to its end. Throws SetupError with what to do. */
export async function setUp(ui: Ui, parts: SetUpParts): Promise<void> {
  const { done } = await beginSetUp(ui, parts);
  await done;
}

async function engineAndTools(ui: Ui, parts: SetUpParts): Promise<void> {
  if (!parts.engine) return;
  const setting = parts.engineSetting ?? null;
  await ensureEngine(setting, ui);
  if (parts.base === undefined) await ensureBaseTools(setting, ui);
}

async function images(ui: Ui, parts: SetUpParts): Promise<void> {
  if (parts.engine) {
    const setting = parts.engineSetting ?? null;
    // The prepared image is found by the executor's hash, so the executor comes first.
    await bundle('executor', false);
    await ensurePreparedImage(ui, parts.base ?? (await ensureBaseImage(setting, ui)), setting);
  }
  if (parts.llama === true) await ensureLlamaServer(ui);
}

async function packages(ui: Ui, parts: SetUpParts): Promise<void> {
  if (parts.pip === true) await ensurePip(ui);
  if (parts.workbench) await ensureBrowser(ui);
  if (parts.podman === true) await ensureForTests(podman, ui);
}
