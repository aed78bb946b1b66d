import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { cp, mkdir, mkdtemp, open, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { chromium, type Browser } from 'playwright-core';
import { findChromium, serverFolder } from '../../../scripts/setup-workbench.ts';
import { builtNames } from '../../../scripts/lib/bundle.ts';
import { root } from '../../../scripts/lib/root.ts';
import { guardFolder, guardProcess } from '../../fixtures/run-guard.ts';
import { descendants, isRunning } from '../../fixtures/processes.ts';
import { phase } from './phases.ts';
import { until } from './until.ts';
import { WorkbenchWindow } from './window.ts';

/** The built-in extensions that the tests look at; each other one costs start time. */
const builtIn = [
  'theme-defaults',
  'theme-modern-icons',
  'json',
  'python',
  'javascript',
  'diff',
  'markdown-basics',
  'configuration-editing',
];

/** A quiet workbench: no start page, no tips, no network, nothing that blinks. */
export const quietSettings: Readonly<Record<string, unknown>> = {
  'workbench.startupEditor': 'none',
  'workbench.tips.enabled': false,
  'workbench.secondarySideBar.defaultVisibility': 'hidden',
  'workbench.enableExperiments': false,
  'workbench.layoutControl.enabled': false,
  'workbench.reduceMotion': 'on',
  // The theme follows what the browser says of the system: tests change it in no time.
  'window.autoDetectColorScheme': true,
  'workbench.preferredDarkColorTheme': 'Dark Modern',
  'workbench.preferredLightColorTheme': 'Light Modern',
  'workbench.settings.enableNaturalLanguageSearch': false,
  'chat.disableAIFeatures': true,
  'chat.agentHost.enabled': false,
  'chat.commandCenter.enabled': false,
  'editor.minimap.enabled': false,
  'editor.cursorBlinking': 'solid',
  // In a browser it is on by default; the tests need an editor that stays unsaved.
  'files.autoSave': 'off',
  'extensions.autoCheckUpdates': false,
  'extensions.autoUpdate': false,
  'extensions.ignoreRecommendations': true,
  'git.enabled': false,
  'telemetry.telemetryLevel': 'off',
  'update.mode': 'none',
  // A tooltip of what the mouse was left on lies over the button that is to be clicked next: none, for a day.
  'workbench.hover.delay': 86_400_000,
  'workbench.hover.reducedDelay': 86_400_000,
  'window.commandCenter': false,
  'window.menuBarVisibility': 'compact',
};

/** What a server is started with; a test that needs another one gets a server of its own. */
export interface WorkbenchOptions {
  /** Seconds that the server keeps an extension host whose browser is gone. */
  readonly reconnectionGraceS?: number;
  /** Workspace trust asked for as in a new installation; off by default, where every folder is trusted. */
  readonly workspaceTrust?: boolean;
  /** A VSIX to install. Without one, the extension as built in the checkout (`dist/`) counts as installed. */
  readonly vsix?: string;
}

/** What may differ between windows of one server: it counts for those that are opened from then on. */
export interface WindowOptions {
  /** User settings beside `quietSettings`. */
  readonly settings?: Readonly<Record<string, unknown>>;
  /** Settings of the machine, where a remote window takes those of scope `machine` from. */
  readonly machineSettings?: Readonly<Record<string, unknown>>;
  /** Environment of the extension hosts. */
  readonly environment?: Readonly<Record<string, string>>;
}

export interface OpenOptions {
  readonly width?: number;
  readonly height?: number;
  /** In a browser process of its own, which a test may kill without harm to other windows. */
  readonly ownBrowser?: boolean;
}

/** Main processes of the browsers that this test run started. */
async function browserProcesses(): Promise<readonly number[]> {
  const children = await descendants(process.pid);
  return children
    .filter(({ command }) => command.includes('--remote-debugging-pipe') && !command.includes('--type='))
    .map(({ pid }) => pid);
}

async function answers(url: string): Promise<true | undefined> {
  return fetch(url).then(
    (response) => (response.ok ? true : undefined),
    () => undefined,
  );
}

/** One VS Code server with its data in a temporary folder, and the browsers that show its windows. Owns all of them. */
export class Workbench {
  readonly folder: string;
  readonly server: ChildProcess;
  readonly #browsers = new Map<Browser, { readonly pid: number; readonly free: () => void }>();
  readonly #windows = new Set<WorkbenchWindow>();
  readonly #free: (() => void)[] = [];
  #shared: Promise<Browser> | undefined;
  #url = '';

  private constructor(folder: string, server: ChildProcess) {
    this.folder = folder;
    this.server = server;
  }

  /** Where its windows are. */
  get url(): string {
    return this.#url;
  }

  static async start(options: WorkbenchOptions = {}): Promise<Workbench> {
    const folder = await mkdtemp(path.join(tmpdir(), 'escrow-workbench-'));
    const freeFolder = guardFolder(folder);
    const at = (...parts: string[]): string => path.join(folder, ...parts);
    await Promise.all(
      ['user/User', 'user/Machine', 'extensions', 'builtin'].map((name) => mkdir(at(name), { recursive: true })),
    );
    for (const name of builtIn) await symlink(path.join(serverFolder, 'extensions', name), at('builtin', name));

    if (options.vsix === undefined) {
      // The server registers what it finds in the folder at its first start. A development path would need the smoke
      // test driver, with which no notification is drawn and every modal is refused. Copies, not links: the extension
      // host knows an extension by the real path of its code. Of dist/ by name: a build may be writing its drafts there.
      const built = builtNames.map((name) => path.join('dist', name));
      for (const name of ['package.json', 'package.nls.json', ...built, 'media', 'l10n']) {
        await cp(path.join(root, name), at('extensions', 'escrow.escrow', name), { recursive: true });
      }
    }

    const common = [
      path.join(serverFolder, 'out', 'server-main.js'),
      '--accept-server-license-terms',
      '--server-data-dir',
      at('server'),
      '--user-data-dir',
      at('user'),
      '--extensions-dir',
      at('extensions'),
      '--builtin-extensions-dir',
      at('builtin'),
      '--disable-telemetry',
      '--force-disable-user-env',
    ];
    const log = await open(at('server.log'), 'a');
    try {
      if (options.vsix !== undefined) {
        const install = spawn(process.execPath, [...common, '--install-extension', options.vsix], {
          stdio: ['ignore', log.fd, log.fd],
        });
        const [code] = (await once(install, 'exit')) as [number | null];
        if (code !== 0) throw new Error(`the VSIX was not installed:\n${await readFile(at('server.log'), 'utf8')}`);
      }
      const server = spawn(
        process.execPath,
        [
          '--require',
          path.join(import.meta.dirname, 'server-environment.cjs'),
          ...common,
          '--host',
          '127.0.0.1',
          '--port',
          // One that is free when it listens; it says which.
          '0',
          '--without-connection-token',
          '--reconnection-grace-time',
          String(options.reconnectionGraceS ?? 2),
          ...(options.workspaceTrust === true ? [] : ['--disable-workspace-trust']),
        ],
        { stdio: ['ignore', log.fd, log.fd, 'ipc'] },
      );
      const workbench = new Workbench(folder, server);
      workbench.#free.push(freeFolder);
      if (server.pid !== undefined) workbench.#free.push(await guardProcess(server.pid));
      try {
        const port = await until('the server listens', 30_000, async () => {
          if (server.exitCode !== null) throw new Error(`the server ended, see ${at('server.log')}`);
          return / listening on (\d+)/.exec(await readFile(at('server.log'), 'utf8'))?.[1];
        });
        workbench.#url = `http://127.0.0.1:${port}`;
        await until('the server answers', 30_000, () => answers(`${workbench.url}/version`));
      } catch (error) {
        await workbench.dispose();
        throw error;
      }
      return workbench;
    } finally {
      await log.close();
    }
  }

  /** Whether windows can still be opened: a test may have ended the server. */
  get running(): boolean {
    return this.server.exitCode === null && this.server.signalCode === null;
  }

  /** Sets what the windows that are opened from now on find. What an earlier call set is gone, environment apart. */
  async configure(options: WindowOptions): Promise<void> {
    const user = { ...quietSettings, ...options.settings };
    await writeFile(this.#settingsFile('User'), JSON.stringify(user, null, 1));
    await this.setMachine(options.machineSettings ?? {});
    const set = once(this.server, 'message', { signal: AbortSignal.timeout(20_000) });
    this.server.send({ environment: options.environment ?? {} });
    await set;
  }

  /** Sets the settings of the machine; windows that are open see the change. */
  async setMachine(settings: Readonly<Record<string, unknown>>): Promise<void> {
    await writeFile(this.#settingsFile('Machine'), JSON.stringify(settings));
  }

  #settingsFile(scope: 'User' | 'Machine'): string {
    return path.join(this.folder, 'user', scope, 'settings.json');
  }

  async #launch(): Promise<Browser> {
    const executablePath = await findChromium();
    if (executablePath === null) throw new Error('no Chromium: run node scripts/setup-workbench.ts');
    const before = await browserProcesses();
    const browser = await chromium.launch({
      executablePath,
      args: [
        '--no-sandbox',
        '--disable-gpu',
        '--disable-quic',
        '--disable-dev-shm-usage',
        '--no-first-run',
        '--disable-background-networking',
        '--disable-component-update',
        '--disable-sync',
      ],
    });
    const [pid] = (await browserProcesses()).filter((entry) => !before.includes(entry));
    if (pid === undefined) throw new Error('the browser that was started is not among the processes');
    const free = await guardProcess(pid);
    this.#browsers.set(browser, { pid, free });
    browser.on('disconnected', () => {
      free();
      this.#browsers.delete(browser);
    });
    return browser;
  }

  /** Opens a window on a folder (or on none) and waits until the workbench has restored. */
  async open(folder: string | null, options: OpenOptions = {}): Promise<WorkbenchWindow> {
    const browser = await phase('start a browser', () => {
      if (options.ownBrowser === true) return this.#launch();
      this.#shared ??= this.#launch();
      return this.#shared;
    });
    const query = new URLSearchParams();
    if (folder === null) query.set('ew', 'true');
    else query.set('folder', folder);
    const window = await phase('load a window', () =>
      WorkbenchWindow.open(browser, `${this.url}/?${query.toString()}`, {
        width: options.width ?? 1280,
        height: options.height ?? 800,
      }),
    );
    this.#windows.add(window);
    return window;
  }

  /** The processes of a window's browser, the main one first. */
  async browserProcesses(window: WorkbenchWindow): Promise<readonly number[]> {
    const main = this.#browsers.get(window.browser)?.pid;
    if (main === undefined) throw new Error('the browser of this window is not known');
    return [main, ...(await descendants(main)).map((child) => child.pid)];
  }

  /** Ends a window's whole browser at once, as a crash does. The window must have a browser of its own. */
  async killBrowser(window: WorkbenchWindow): Promise<void> {
    const gone = Promise.withResolvers<void>();
    window.browser.once('disconnected', () => gone.resolve());
    // Its children hold the pipe that tells of its end: a browser is gone when they are.
    for (const pid of await this.browserProcesses(window)) {
      try {
        process.kill(pid, 'SIGKILL');
      } catch {
        // Gone with its parent.
      }
    }
    await Promise.race([
      gone.promise,
      delay(20_000).then(() => Promise.reject(new Error(`a killed browser is still there`))),
    ]);
    this.#windows.delete(window);
  }

  /** Process ids of the extension hosts, the oldest first. */
  async extensionHosts(): Promise<readonly number[]> {
    const pid = this.server.pid;
    if (pid === undefined) return [];
    const found = (await descendants(pid)).filter((entry) => entry.command.includes('--type=extensionHost'));
    return found.map((entry) => entry.pid).toSorted((a, b) => a - b);
  }

  /** A picture of every open window, for the eyes of whoever looks why a test failed. */
  async screenshots(name: string): Promise<void> {
    const windows = [...this.#windows].filter((window) => !window.page.isClosed());
    await Promise.allSettled(windows.map((window, index) => window.screenshot(`${name}-${index + 1}`)));
  }

  /** Closes every window, with its browser where it had one of its own, and sees that no extension host is left. */
  async closeWindows(): Promise<void> {
    // A page first: a browser that goes with its pages open leaves the extension host behind for the grace time.
    await Promise.allSettled([...this.#windows].map((window) => window.close()));
    this.#windows.clear();
    const shared = await this.#shared?.catch(() => undefined);
    const own = [...this.#browsers.keys()].filter((browser) => browser !== shared);
    await Promise.allSettled(own.map((browser) => browser.close()));
    const hosts = await this.extensionHosts();
    for (const pid of hosts) {
      try {
        process.kill(pid, 'SIGKILL');
      } catch {
        // It had heard of the end of its window.
      }
    }
    for (const pid of hosts) {
      await until('an extension host is gone', 10_000, async () => ((await isRunning(pid)) ? undefined : true));
    }
  }

  async dispose(): Promise<void> {
    await Promise.allSettled([...this.#windows].map((window) => window.close()));
    await Promise.allSettled([...this.#browsers.keys()].map((browser) => browser.close()));
    if (this.running) {
      const exit = once(this.server, 'exit');
      this.server.kill('SIGTERM');
      const force = setTimeout(() => this.server.kill('SIGKILL'), 10_000);
      await exit;
      clearTimeout(force);
    }
    await rm(this.folder, { recursive: true, force: true, maxRetries: 5, retryDelay: 200 });
    for (const free of this.#free.splice(0)) free();
  }
}
