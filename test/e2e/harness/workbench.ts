import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { cp, mkdir, mkdtemp, open, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { chromium, type Browser } from 'playwright-core';
import { findChromium, serverFolder } from '../../../scripts/setup-workbench.ts';
import { root } from '../../../scripts/lib/root.ts';
import { descendants } from './processes.ts';
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
  'workbench.colorTheme': 'Dark Modern',
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
  'window.commandCenter': false,
  'window.menuBarVisibility': 'compact',
};

export interface WorkbenchOptions {
  /** User settings beside `quietSettings`. */
  readonly settings?: Readonly<Record<string, unknown>>;
  /** Settings of the machine, where a remote window takes those of scope `machine` from. */
  readonly machineSettings?: Readonly<Record<string, unknown>>;
  /** Environment of the server, and so of the extension hosts. */
  readonly env?: Readonly<Record<string, string>>;
  /** Seconds that the server keeps an extension host whose browser is gone. */
  readonly reconnectionGraceS?: number;
  /** Workspace trust asked for as in a new installation; off by default, where every folder is trusted. */
  readonly workspaceTrust?: boolean;
  /** A VSIX to install. Without one, the extension as built in the checkout (`dist/`) counts as installed. */
  readonly vsix?: string;
}

export interface OpenOptions {
  readonly width?: number;
  readonly height?: number;
  /** In a browser process of its own, which a test may kill without harm to other windows. */
  readonly ownBrowser?: boolean;
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  server.close();
  await once(server, 'close');
  if (address === null || typeof address === 'string') throw new Error('no port');
  return address.port;
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
  readonly url: string;
  readonly server: ChildProcess;
  readonly #browsers = new Set<Browser>();
  readonly #windows = new Set<WorkbenchWindow>();
  readonly #browserPids = new Map<Browser, number>();
  #shared: Promise<Browser> | undefined;

  private constructor(folder: string, url: string, server: ChildProcess) {
    this.folder = folder;
    this.url = url;
    this.server = server;
  }

  static async start(options: WorkbenchOptions = {}): Promise<Workbench> {
    const folder = await mkdtemp(path.join(tmpdir(), 'escrow-workbench-'));
    const at = (...parts: string[]): string => path.join(folder, ...parts);
    const settings = { ...quietSettings, ...options.settings };
    await Promise.all(
      ['user/User', 'user/Machine', 'extensions', 'builtin'].map((name) => mkdir(at(name), { recursive: true })),
    );
    await writeFile(at('user', 'User', 'settings.json'), JSON.stringify(settings, null, 1));
    await writeFile(at('user', 'Machine', 'settings.json'), JSON.stringify(options.machineSettings ?? {}));
    for (const name of builtIn) await symlink(path.join(serverFolder, 'extensions', name), at('builtin', name));

    if (options.vsix === undefined) {
      // The server registers what it finds in the folder at its first start. A development path would need the smoke
      // test driver, with which no notification is drawn and every modal is refused. Copies, not links: the extension
      // host knows an extension by the real path of its code.
      for (const name of ['package.json', 'package.nls.json', 'dist', 'media', 'l10n']) {
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
      const port = await freePort();
      const server = spawn(
        process.execPath,
        [
          ...common,
          '--host',
          '127.0.0.1',
          '--port',
          String(port),
          '--without-connection-token',
          '--reconnection-grace-time',
          String(options.reconnectionGraceS ?? 2),
          ...(options.workspaceTrust === true ? [] : ['--disable-workspace-trust']),
        ],
        { env: { ...process.env, ...options.env }, stdio: ['ignore', log.fd, log.fd] },
      );
      const url = `http://127.0.0.1:${port}`;
      const workbench = new Workbench(folder, url, server);
      try {
        await until('the server answers', 30_000, () => {
          if (server.exitCode !== null) throw new Error(`the server ended, see ${at('server.log')}`);
          return answers(`${url}/version`);
        });
      } catch (error) {
        await workbench.dispose();
        throw error;
      }
      return workbench;
    } finally {
      await log.close();
    }
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
    this.#browsers.add(browser);
    const [main] = (await browserProcesses()).filter((pid) => !before.includes(pid));
    if (main !== undefined) this.#browserPids.set(browser, main);
    browser.on('disconnected', () => this.#browsers.delete(browser));
    return browser;
  }

  /** Opens a window on a folder (or on none) and waits until the workbench has restored. */
  async open(folder: string | null, options: OpenOptions = {}): Promise<WorkbenchWindow> {
    this.#shared ??= this.#launch();
    const browser = options.ownBrowser === true ? await this.#launch() : await this.#shared;
    const query = new URLSearchParams();
    if (folder === null) query.set('ew', 'true');
    else query.set('folder', folder);
    const window = await WorkbenchWindow.open(browser, `${this.url}/?${query.toString()}`, {
      width: options.width ?? 1280,
      height: options.height ?? 800,
    });
    this.#windows.add(window);
    return window;
  }

  /** Ends a window's whole browser at once, as a crash does. The window must have a browser of its own. */
  async killBrowser(window: WorkbenchWindow): Promise<void> {
    const pid = this.#browserPids.get(window.browser);
    if (pid === undefined) throw new Error('the browser of this window is not known');
    const gone = Promise.withResolvers<void>();
    window.browser.once('disconnected', () => gone.resolve());
    const children = await descendants(pid);
    // Its children hold the pipe that tells of its end: a browser is gone when they are.
    for (const one of [pid, ...children.map((child) => child.pid)]) {
      try {
        process.kill(one, 'SIGKILL');
      } catch {
        // Gone with its parent.
      }
    }
    await Promise.race([
      gone.promise,
      delay(20_000).then(() => Promise.reject(new Error(`the browser (${pid}) is still there`))),
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

  async dispose(): Promise<void> {
    // A page first: a browser that goes with its pages open leaves the extension host behind for the grace time.
    await Promise.allSettled([...this.#windows].map((window) => window.close()));
    await Promise.allSettled([...this.#browsers].map((browser) => browser.close()));
    if (this.server.exitCode === null && this.server.signalCode === null) {
      const exit = once(this.server, 'exit');
      this.server.kill('SIGTERM');
      const force = setTimeout(() => this.server.kill('SIGKILL'), 10_000);
      await exit;
      clearTimeout(force);
    }
    await rm(this.folder, { recursive: true, force: true, maxRetries: 5, retryDelay: 200 });
  }
}
