import * as vscode from 'vscode';
import type { SessionId } from '../../protocol/primitives.ts';
import { EscrowError } from '../../protocol/errors.ts';
import type { Params, Result } from '../../protocol/methods.ts';
import type { SessionView } from '../../protocol/views.ts';
import { chooseContract, requireDiscriminating, runBaseline } from '../contracts/contract-commands.ts';
import { asOutput } from '../documents/plain-texts.ts';
import { workspaceUri } from '../documents/workspace-files.ts';
import { withImage } from '../images/image-commands.ts';
import { commands, views } from '../ids.ts';
import { showInformation } from '../messages.ts';
import { assertedReviewer } from '../review/asserted-reviewer.ts';
import { isRow } from '../tree-argument.ts';
import { bindingWords } from '../trees/words.ts';
import { formatArtefactUri } from '../uris.ts';
import { visible, withoutIcons } from '../visible-text.ts';
import type { CommandTable, WindowParts } from '../window-parts.ts';
import { chooseModel } from './model-picker.ts';

/** How many more attempts a person allows; undefined when they leave it. */
async function askForAttempts(): Promise<number | undefined> {
  const text = await vscode.window.showInputBox({
    title: vscode.l10n.t('Allow More Attempts'),
    prompt: vscode.l10n.t(
      'The attempts of this contract are used up, over all its sessions. How many more? Your decision is recorded.',
    ),
    placeHolder: vscode.l10n.t('1 to 20'),
    ignoreFocusOut: true,
    validateInput: (value) =>
      /^([1-9]|1\d|20)$/.test(value.trim()) ? undefined : vscode.l10n.t('A number from 1 to 20.'),
  });
  return text === undefined ? undefined : Number(text);
}

/** Start, cancel, attempt again, attach, and the documents of a session. */
export function sessionCommands(parts: WindowParts): CommandTable {
  const { store, link, observer, log } = parts;

  async function chooseSession(
    argument: unknown,
    fits: (session: SessionView) => boolean,
  ): Promise<SessionView | undefined> {
    if (isRow(argument) && 'session' in argument.target) {
      const { session } = argument.target;
      return store.state.sessions.get(session)?.value ?? link.request('session/get', { session });
    }
    const fitting = [...store.state.sessions.values()]
      .map(({ value }) => value)
      .filter(fits)
      .toSorted((a, b) => b.updatedAt - a.updatedAt);
    const [only] = fitting;
    if (only === undefined) {
      showInformation(vscode.l10n.t('No session fits this.'));
      return undefined;
    }
    if (fitting.length === 1) return only;
    const picked = await vscode.window.showQuickPick(
      fitting.map((session) => ({
        label: withoutIcons(visible(session.title)),
        description: withoutIcons(visible(bindingWords(session.binding, vscode.l10n.t))),
        session,
      })),
      { title: vscode.l10n.t('Session'), placeHolder: vscode.l10n.t('Which session?') },
    );
    return picked?.session;
  }

  async function attach(session: SessionId, mode: 'observe' | 'control', takeOver: boolean): Promise<void> {
    const answer = await link.request('session/attach', { session, mode, takeOver });
    observer.took(answer.session, answer.token);
    await observer.watchWorkspace(session);
    await parts.revealSession(session);
  }

  /** Starts; where the budget is spent, a person may decide to allow more, by name. Undefined when they do not. */
  async function startWithinBudget(
    params: Params<'session/start'>,
    title: string,
  ): Promise<Result<'session/start'> | undefined> {
    const start = (more: Pick<Params<'session/start'>, 'extend'>): Promise<Result<'session/start'>> =>
      parts.operations.run(vscode.l10n.t('Starting'), visible(title), (token) =>
        link.request('session/start', { ...params, ...more }, token),
      );
    try {
      return await start({});
    } catch (error) {
      if (!EscrowError.is(error, 'BudgetSpent')) throw error;
      const attempts = await askForAttempts();
      if (attempts === undefined) return undefined;
      return start({ extend: { attempts, reviewer: await assertedReviewer(params.root) } });
    }
  }

  return {
    [commands.startSession]: async (argument) => {
      const contract = await chooseContract(argument);
      if (contract === undefined) return;
      await parts.ensureConnected();
      const frozen = await link.request('contract/freeze', { path: contract.fsPath });
      const { models } = await link.request('kernel/models', {});
      const model = await chooseModel(models, contract);
      if (model === undefined) return;
      await vscode.commands.executeCommand(`${views.sessions}.focus`);
      const baseline = frozen.baseline?.result === 'discriminates' ? frozen.baseline : await runBaseline(parts, frozen);
      requireDiscriminating(baseline, parts.words);
      const started = await withImage(parts, frozen.digest, () =>
        startWithinBudget({ digest: frozen.digest, root: frozen.root, ...model }, frozen.contract.title),
      );
      if (started === undefined) return;
      observer.took(started.session, started.token);
      log.info(`session ${started.session.id} started: ${bindingWords(started.session.binding, vscode.l10n.t)}`);
      await observer.watchWorkspace(started.session.id);
      await parts.revealSession(started.session.id);
    },
    [commands.cancelSession]: async (argument) => {
      const session = await chooseSession(argument, ({ id }) => store.state.controls.has(id));
      if (session === undefined) return;
      observer.put(await link.request('session/cancel', { session: session.id, token: observer.token(session.id) }));
    },
    [commands.newAttempt]: async (argument) => {
      const session = await chooseSession(
        argument,
        ({ id, budget }) => store.state.controls.has(id) && budget.used < budget.attempts,
      );
      if (session === undefined) return;
      observer.put(await link.request('session/attempt', { session: session.id, token: observer.token(session.id) }));
    },
    [commands.extendBudget]: async (argument) => {
      const session = await chooseSession(argument, ({ state }) => state !== 'closed');
      if (session === undefined) return;
      const attempts = await askForAttempts();
      if (attempts === undefined) return;
      observer.put(
        await link.request('session/extend', {
          session: session.id,
          attempts,
          reviewer: await assertedReviewer(session.root),
        }),
      );
    },
    [commands.reconcileAttempt]: async (argument) => {
      if (!isRow(argument) || argument.target.kind !== 'pending') return;
      const { session, attempt, since } = argument.target;
      const why = await vscode.window.showInputBox({
        title: vscode.l10n.t('Settle Without Confirmation'),
        prompt: vscode.l10n.t(
          'Nobody has seen this sandbox end. How do you know that it has? Your words are recorded, and this cannot be undone.',
        ),
        ignoreFocusOut: true,
        validateInput: (value) =>
          value.trim() === '' || value.length > 4000 ? vscode.l10n.t('Between 1 and 4000 characters.') : undefined,
      });
      if (why === undefined) return;
      const root = store.state.sessions.get(session)?.value.root;
      observer.put(
        await link.request('session/reconcile', {
          session,
          attempt,
          since,
          why,
          reviewer: await assertedReviewer(root),
        }),
      );
    },
    [commands.closeSession]: async (argument) => {
      const session = await chooseSession(
        argument,
        ({ id, state }) => store.state.controls.has(id) && state !== 'closed',
      );
      if (session === undefined) return;
      observer.put(await link.request('session/close', { session: session.id, token: observer.token(session.id) }));
    },
    [commands.attachSession]: async (argument) => {
      const session = await chooseSession(argument, ({ state }) => state !== 'closed');
      if (session === undefined) return;
      const other = session.controller !== null && !store.state.controls.has(session.id);
      const held = other && session.controller?.connected === true;
      const name = withoutIcons(visible(session.controller?.name ?? ''));
      const picked = await vscode.window.showQuickPick(
        [
          {
            label: vscode.l10n.t('Observe'),
            detail: vscode.l10n.t('See its files and its course. Anybody may.'),
            mode: 'observe',
            takeOver: false,
          } as const,
          held
            ? ({
                label: vscode.l10n.t('Take Over'),
                detail: vscode.l10n.t('{0} controls it now, and will be told.', name),
                mode: 'control',
                takeOver: true,
              } as const)
            : ({
                label: vscode.l10n.t('Control'),
                detail: vscode.l10n.t('This window may cancel and start attempts. One controller at a time.'),
                mode: 'control',
                takeOver: false,
              } as const),
        ],
        { title: vscode.l10n.t('Attach to {0}', withoutIcons(visible(session.title))) },
      );
      if (picked !== undefined) await attach(session.id, picked.mode, picked.takeOver);
    },
    [commands.detachSession]: async (argument) => {
      const session = await chooseSession(argument, ({ id }) => store.state.controls.has(id));
      if (session === undefined) return;
      await link.request('session/detach', { session: session.id });
      observer.released(session.id);
      await observer.refresh(session.id);
    },
    [commands.openWorkspaceFile]: async (argument) => {
      if (!isRow(argument) || argument.target.kind !== 'workspace-file') return;
      const { session, path } = argument.target;
      await vscode.window.showTextDocument(workspaceUri(session, path), { preview: true });
    },
    [commands.showOutput]: async (argument) => {
      if (!isRow(argument) || argument.target.kind !== 'output') return;
      const { name, sha256, size } = argument.target;
      const uri = vscode.Uri.from(formatArtefactUri({ kind: 'output', path: name, sha256, size }));
      const document = await asOutput(await vscode.workspace.openTextDocument(uri));
      await vscode.window.showTextDocument(document, { preview: true });
    },
    [commands.showText]: async (argument) => {
      if (!isRow(argument) || argument.target.kind !== 'text') return;
      const { title, text } = argument.target;
      await vscode.window.showTextDocument(await parts.texts.open(title, text), { preview: true });
    },
    [commands.cancelOperation]: (argument) => {
      if (isRow(argument) && argument.target.kind === 'operation') parts.operations.cancel(argument.target.id);
      return Promise.resolve();
    },
    [commands.refresh]: async () => {
      await parts.ensureConnected();
      await observer.refreshAll();
    },
  };
}
