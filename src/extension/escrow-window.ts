import { access } from 'node:fs/promises';
import path from 'node:path';
import * as vscode from 'vscode';
import { EscrowError } from '../protocol/errors.ts';
import { windowFault } from './fault-words.ts';
import { homePath } from '../protocol/home.ts';
import type { SessionId } from '../protocol/primitives.ts';
import { productVersion } from '../protocol/version.ts';
import { tellAway } from './away-message.ts';
import { setKey } from './context-key.ts';
import { contractCommands } from './contracts/contract-commands.ts';
import { ArtefactFiles } from './documents/artefact-files.ts';
import { PlainTexts } from './documents/plain-texts.ts';
import { realPath, samePaths } from './documents/same-paths.ts';
import { WorkspaceFiles } from './documents/workspace-files.ts';
import { exampleCommands } from './example-command.ts';
import { imageCommands } from './images/image-commands.ts';
import { imageListCommands } from './images/image-list-commands.ts';
import { artefactScheme, commands, contextKeys, settings, views, workspaceScheme } from './ids.ts';
import { connectKernel } from './kernel/connect.ts';
import { kernelCommands } from './kernel/kernel-commands.ts';
import { KernelHeartbeat } from './kernel/kernel-heartbeat.ts';
import { KernelLink } from './kernel/kernel-link.ts';
import { KernelObserver } from './kernel/kernel-observer.ts';
import { Refresher } from './kernel/refresher.ts';
import { showError, showInformation } from './messages.ts';
import { Operations } from './operations.ts';
import { possibleActions } from './possible-actions.ts';
import { Presence } from './presence.ts';
import { reviewCommands } from './review/review-commands.ts';
import { EvidenceDocuments } from './review/evidence-documents.ts';
import { ReviewEditor } from './review/review-editor.ts';
import { UnseenWatch } from './review/unseen-watch.ts';
import { sessionCommands } from './sessions/session-commands.ts';
import { statusLine } from './status-line.ts';
import { greyStaleRows, RowTreeView } from './tree-view.ts';
import { healthTree } from './trees/health-tree.ts';
import { modelsTree } from './trees/models-tree.ts';
import { sessionTree } from './trees/session-tree.ts';
import type { TreeWords } from './trees/tree-node.ts';
import { visible } from './visible-text.ts';
import { viewMessage } from './view-message.ts';
import { claimWindowIdentity, type WindowIdentity } from './window-identity.ts';
import type { CommandTable, WindowParts } from './window-parts.ts';
import { StateStore, isCurrent, type Missing, type WindowState } from './window-state.ts';

/** The window is asked whether it is there this often (design 10: every few seconds). */
const presenceIntervalMs = 5000;
/** Silence that is reported as `unreachable`; what follows from it, and after how long, is the Kernel's to say. */
const unreachableAfterMs = 15_000;

/** A Kernel that leaves a question open this long is shown as silent: what it said before is no longer shown as so. */
const kernelSilentAfterMs = 15_000;

/** Now, on the wall: for what people read. */
const now = (): number => Date.now();

function treeWords(): TreeWords {
  const sameDay = new Intl.DateTimeFormat(vscode.env.language, {
    hour: '2-digit',
    minute: '2-digit',
    hourCycle: 'h23',
  });
  const otherDay = new Intl.DateTimeFormat(vscode.env.language, {
    day: 'numeric',
    month: 'short',
    hour: '2-digit',
    minute: '2-digit',
    hourCycle: 'h23',
  });
  const number = new Intl.NumberFormat(vscode.env.language);
  return {
    t: vscode.l10n.t,
    time: (at) =>
      new Date(at).toDateString() === new Date().toDateString() ? sameDay.format(at) : otherDay.format(at),
    number: (value) => number.format(value),
    home: homePath(),
  };
}

async function inGitRepository(folder: string): Promise<boolean> {
  for (let at = folder; ; at = path.dirname(at)) {
    const found = await access(path.join(at, '.git')).then(
      () => true,
      () => false,
    );
    if (found) return true;
    if (at === path.dirname(at)) return false;
  }
}

/** The folders of this window on this machine, as it names them and, where a link leads there, as the Kernel does. */
function localFolders(): readonly string[] {
  const named = (vscode.workspace.workspaceFolders ?? [])
    .filter((folder) => folder.uri.scheme === 'file')
    .map((folder) => folder.uri.fsPath);
  return [...new Set([...named, ...named.map(realPath)])];
}

/** What stands in the way of asking a Kernel anything, the first thing first. */
async function whatIsMissing(): Promise<Missing> {
  if (!vscode.workspace.isTrusted) return 'trust';
  const folders = localFolders();
  if (folders.length === 0) return 'folder';
  const inGit = await Promise.all(folders.map(inGitRepository));
  return inGit.includes(true) ? 'nothing' : 'git';
}

/** Everything of Escrow in one window; owns what it makes. */
export class EscrowWindow implements vscode.Disposable {
  readonly #identity: WindowIdentity;
  readonly #link: KernelLink;
  readonly #presence: Presence;
  readonly #disposables: vscode.Disposable[] = [];
  #folders = localFolders();
  #looks = 0;
  /** A Kernel is wanted, and nobody has begun to look for it. */
  #wanted = false;
  #closed = false;

  static async open(context: vscode.ExtensionContext): Promise<EscrowWindow> {
    const store = new StateStore();
    const missing = await whatIsMissing();
    store.update({ missing });
    const window = new EscrowWindow(context, store);
    // Once more: what changed before anybody listened is not told.
    window.#begin(store);
    return window;
  }

  private constructor(context: vscode.ExtensionContext, store: StateStore) {
    const log = vscode.window.createOutputChannel('Escrow', { log: true });
    const configuration = (): vscode.WorkspaceConfiguration => vscode.workspace.getConfiguration();
    const graceMs = Math.max(0, Math.min(600, configuration().get<number>(settings.graceSeconds) ?? 20)) * 1000;
    this.#identity = claimWindowIdentity({
      folder: path.join((context.storageUri ?? context.globalStorageUri).fsPath, 'windows'),
      // Twice the grace: an overlap with the old host of a reload is part of it.
      takeOverWithinMs: Math.max(graceMs * 2, 60_000),
      pid: process.pid,
      now,
      isAlive,
    });
    const { clientId } = this.#identity;
    log.info(`window ${clientId}${this.#identity.resumed ? ' (continued)' : ''}`);

    const connecting = new AbortController();
    const link = new KernelLink({
      store,
      log,
      now,
      connect: (autostart) =>
        connectKernel({
          autostart,
          signal: connecting.signal,
          kernelPath: context.asAbsolutePath('dist/kernel.cjs'),
          nodePath: configuration().get<string>(settings.kernelNode)?.trim() ?? '',
          environment: kernelVariables(configuration()),
          hello: {
            kind: 'window',
            name: windowName(),
            version: productVersion,
            clientId,
            onClose:
              configuration().get<string>(settings.onWindowClose) === 'finishAttempt' ? 'finishAttempt' : 'settle',
            graceMs,
          },
        }),
      onConnected: () => observer.connected(),
      onNotification: (name, params) => observer.receive(name, params),
      unsaved: (paths) => samePaths(paths, unsavedFiles(), realPath),
    });
    this.#link = link;
    const workspaceFiles = new WorkspaceFiles(link, now);
    const artefactFiles = new ArtefactFiles(link);
    const operations = new Operations(store, now);
    const review = new ReviewEditor(store);
    const words = treeWords();
    const evidence = new EvidenceDocuments(store, words, (session) => observer.refreshEvidence(session));
    const texts = new PlainTexts();
    const logError = (what: string, error: unknown): void => {
      // A connection that ends takes its questions with it; the views say that it ended.
      if (EscrowError.is(error, 'NoKernel')) return;
      log.warn(`${what}: ${error instanceof Error ? error.message : String(error)}`);
    };
    // A burst of events costs the sandbox one look, or two.
    const documents = new Refresher<SessionId>(
      (session) => workspaceFiles.sessionChanged(session),
      (session, error) => logError(`documents of ${session}`, error),
    );
    const observer = new KernelObserver({
      store,
      link,
      clientId,
      now,
      logError,
      awaySince: this.#identity.lastWindowAt,
      onEvents: (events) => {
        for (const event of events) log.debug(`${event.seq} ${event.stream} ${event.type}`);
        const sessions = new Set(
          [...store.state.sessions.keys()].filter((id) => events.some(({ stream }) => stream.endsWith(id))),
        );
        for (const session of sessions) void documents.refresh(session);
      },
      onAway: (summary) => void tellAway(summary),
      onControlLost: (session, by) => {
        const title = store.state.sessions.get(session)?.value.title ?? session;
        showInformation(vscode.l10n.t('{0} now controls "{1}". This window observes.', visible(by), visible(title)));
      },
    });

    const unseen = new UnseenWatch({ store, review, readFile: (uri) => artefactFiles.readFile(uri), logError });
    const sessionsView = new RowTreeView(views.sessions, {
      onExpand: (row) => {
        if (row.target.kind !== 'session') return;
        const { session } = row.target;
        void (row.id.endsWith('/workspace') ? observer.watchWorkspace(session) : observer.refresh(session));
      },
    });
    const modelsView = new RowTreeView(views.models, { onExpand: () => undefined });
    const healthView = new RowTreeView(views.health, { onExpand: () => undefined });
    const statusBar = vscode.window.createStatusBarItem('escrow.status', vscode.StatusBarAlignment.Left, 10);
    statusBar.name = 'Escrow';
    statusBar.show();

    const render = (state: WindowState): void => {
      sessionsView.show(sessionTree(state, this.#folders, words));
      modelsView.show(modelsTree(state, words));
      healthView.show(healthTree(state, words));
      sessionsView.view.message = viewMessage(state, words, 'sessions');
      modelsView.view.message = viewMessage(state, words, 'models');
      healthView.view.message = viewMessage(state, words, 'health');
      const toReview = [...state.sessions.values()].filter(({ value }) =>
        value.candidates.some(({ decision, verdict }) => decision === null && verdict === 'passed'),
      ).length;
      sessionsView.view.badge =
        toReview > 0 && isCurrent(state)
          ? { value: toReview, tooltip: vscode.l10n.t('{0} to review', toReview) }
          : undefined;
      const onScreen = isCurrent(state) ? review.onScreen() : undefined;
      const line = statusLine(state, words, onScreen);
      statusBar.command = onScreen === undefined ? `${views.sessions}.focus` : commands.showEvidence;
      statusBar.text = line.text;
      statusBar.tooltip = line.tooltip;
      statusBar.accessibilityInformation = { label: line.spoken };
      statusBar.backgroundColor =
        line.tone === 'warning' ? new vscode.ThemeColor('statusBarItem.warningBackground') : undefined;
      publishKeys(state);
    };
    let rendering = false;
    // Several changes of one turn are one drawing.
    const scheduleRender = (): void => {
      if (rendering) return;
      rendering = true;
      queueMicrotask(() => {
        rendering = false;
        if (!this.#closed) render(store.state);
      });
    };

    const parts: WindowParts = {
      context,
      log,
      clientId,
      store,
      link,
      observer,
      operations,
      review,
      unseen,
      evidence,
      texts,
      words,
      ensureConnected: () => ensureConnected(store, link),
      revealSession: async (id) => {
        render(store.state);
        await sessionsView.reveal(id);
      },
    };
    const registered = registerCommands(parts, {
      ...contractCommands(parts),
      ...sessionCommands(parts),
      ...reviewCommands(parts),
      ...kernelCommands(parts),
      ...imageCommands(parts),
      ...imageListCommands(parts),
      ...exampleCommands(context.extensionPath),
    });

    const heartbeat = new KernelHeartbeat({
      ask: (ui, stalledMs) => Promise.race([link.request('window/presence', { ui, stalledMs }), link.ended()]),
      onAnswering: (answering) => {
        const { connection } = store.state;
        if (!answering) log.warn('The Kernel does not answer.');
        if (connection.kind === 'connected') store.update({ connection: { ...connection, answering } });
      },
      monotonic: () => performance.now(),
      silentAfterMs: kernelSilentAfterMs,
    });
    let probe = 0;
    this.#presence = new Presence({
      intervalMs: presenceIntervalMs,
      unreachableAfterMs,
      monotonic: () => performance.now(),
      roundTrip: () => Promise.resolve(vscode.commands.executeCommand('setContext', contextKeys.presence, ++probe)),
      report: (ui, stalledMs) => {
        if (ui === 'present') this.#identity.touch();
        if (!link.connected) return;
        heartbeat.beat(ui, stalledMs);
        observer.retry();
      },
    });
    this.#presence.start();

    // "Initialize Repository", or a terminal.
    const repositories = vscode.workspace.createFileSystemWatcher('**/.git', false, true, false);
    this.#disposables.push(
      store.onChange(scheduleRender),
      review.onDidChange(scheduleRender),
      ...registered,
      vscode.workspace.registerFileSystemProvider(artefactScheme, artefactFiles, {
        isReadonly: new vscode.MarkdownString(vscode.l10n.t('Bytes that the Kernel keeps. They cannot be changed.')),
        isCaseSensitive: true,
      }),
      vscode.workspace.registerFileSystemProvider(workspaceScheme, workspaceFiles, {
        isReadonly: new vscode.MarkdownString(
          vscode.l10n.t('A file of the sandbox, not of your folder. It can only be read.'),
        ),
        isCaseSensitive: true,
      }),
      greyStaleRows(() => vscode.l10n.t('Not current')),
      vscode.workspace.onDidGrantWorkspaceTrust(() => this.#begin(store)),
      vscode.workspace.onDidChangeWorkspaceFolders(() => this.#begin(store)),
      repositories,
      repositories.onDidCreate(() => this.#look(store)),
      repositories.onDidDelete(() => this.#look(store)),
      vscode.workspace.onDidChangeConfiguration((event) => {
        void this.#configurationChanged(event, store);
      }),
      { dispose: () => connecting.abort() },
      artefactFiles,
      workspaceFiles,
      operations,
      evidence,
      unseen,
      review,
      texts,
      sessionsView,
      modelsView,
      healthView,
      statusBar,
      log,
    );
    render(store.state);
  }

  /** Gives the window up: the identity to the next extension host, the connection at once. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    this.#presence.dispose();
    this.#identity.release();
    // The end of the connection is what counts; the goodbye only spares the Kernel a look. Never waits for long.
    const bounded = AbortSignal.timeout(1000);
    const patience = new Promise<void>((resolve) => {
      bounded.addEventListener('abort', () => resolve(), { once: true });
    });
    await Promise.race([this.#link.sayGoodbye().catch(() => undefined), patience]);
    this.#link.dispose();
  }

  dispose(): void {
    void this.close();
    for (const disposable of this.#disposables.splice(0).toReversed()) disposable.dispose();
  }

  /** Looks what is missing now, and connects where nothing is that a Kernel needs. */
  #begin(store: StateStore): void {
    this.#wanted = true;
    this.#look(store);
  }

  /** Looks what is missing now. By itself no wish for a Kernel: one that a person stopped stays so. */
  #look(store: StateStore): void {
    const look = ++this.#looks;
    this.#folders = localFolders();
    void whatIsMissing().then((missing) => {
      // A later look has begun, and sees more.
      if (look !== this.#looks || this.#closed) return;
      store.update({ missing });
      if (!this.#wanted || (missing !== 'nothing' && missing !== 'git')) return;
      this.#wanted = false;
      this.#link.start();
    });
  }

  async #configurationChanged(event: vscode.ConfigurationChangeEvent, store: StateStore): Promise<void> {
    const atStart = [settings.kernelNode, settings.engineHost, settings.ollamaHost, settings.executionEnabled];
    if (!atStart.some((name) => event.affectsConfiguration(name))) return;
    publishKeys(store.state);
    if (!this.#link.connected) return;
    const restart = vscode.l10n.t('Restart Kernel');
    const answer = await vscode.window.showInformationMessage(
      vscode.l10n.t('This setting counts for the Kernel from its next start.'),
      restart,
    );
    if (answer === restart) await vscode.commands.executeCommand(commands.restartKernel);
  }
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    // EPERM: there is such a process, of somebody else.
    return error instanceof Error && 'code' in error && error.code === 'EPERM';
  }
}

/** How the window is called in other windows and on the command line. */
function windowName(): string {
  const folder = vscode.workspace.name ?? vscode.l10n.t('no folder');
  return visible(`${vscode.env.appName} · ${folder}`, 110);
}

/** Machine settings that differ from their defaults, as the variables that a Kernel reads at its start. */
function kernelVariables(configuration: vscode.WorkspaceConfiguration): Readonly<Record<string, string>> {
  const variables: Record<string, string> = {};
  const engine = configuration.get<string>(settings.engineHost)?.trim() ?? '';
  const ollama = configuration.get<string>(settings.ollamaHost)?.trim() ?? '';
  if (engine !== '') variables['ESCROW_ENGINE_HOST'] = engine;
  if (ollama !== '') variables['ESCROW_INFERENCE_HOST'] = ollama;
  if (configuration.get<boolean>(settings.executionEnabled) === false) variables['ESCROW_EXECUTION_ENABLED'] = 'false';
  return variables;
}

/** The files that an editor of this window holds with changes that are not saved; custom editors say so by their tab. */
function unsavedFiles(): readonly string[] {
  const tabs = vscode.window.tabGroups.all.flatMap((group) => group.tabs.filter((tab) => tab.isDirty));
  return [
    ...vscode.workspace.textDocuments.filter((document) => document.isDirty).map((document) => document.uri),
    ...vscode.workspace.notebookDocuments.filter((document) => document.isDirty).map((document) => document.uri),
    ...tabs.flatMap(({ input }) => (input instanceof vscode.TabInputCustom ? [input.uri] : [])),
  ].flatMap((uri) => (uri.scheme === 'file' ? [uri.fsPath] : []));
}

function publishKeys(state: WindowState): void {
  const current = isCurrent(state);
  const status = state.status?.value;
  setKey(contextKeys.connection, state.connection.kind);
  setKey(contextKeys.missing, state.missing);
  setKey(
    contextKeys.executionEnabled,
    vscode.workspace.getConfiguration().get<boolean>(settings.executionEnabled) !== false,
  );
  setKey(contextKeys.engineReady, current && status?.engine.state === 'ok');
  setKey(contextKeys.imageReady, current && status?.image.state === 'ok');
  setKey(contextKeys.inferenceReady, current && status?.inference.state === 'ok');
  for (const [key, possible] of Object.entries(possibleActions(state))) setKey(key, possible);
}

/** Waits for a connection; throws what keeps it from coming. */
async function ensureConnected(store: StateStore, link: KernelLink): Promise<void> {
  if (!vscode.workspace.isTrusted) {
    throw windowFault(
      'UnsafePath',
      vscode.l10n.t('This folder is not trusted, so nothing of it is read or run.'),
      vscode.l10n.t('Trust the folder first (command "Workspaces: Manage Workspace Trust").'),
    );
  }
  if (store.state.connection.kind !== 'connected') await link.connect();
}

function registerCommands(parts: WindowParts, table: CommandTable): readonly vscode.Disposable[] {
  return Object.entries(table).map(([id, run]) =>
    vscode.commands.registerCommand(id, async (...args: unknown[]) => {
      try {
        await run(...args);
      } catch (error) {
        // Not awaited: a command is over when its error is on screen, not when somebody closes it.
        void showError(error, parts.log);
      }
    }),
  );
}
