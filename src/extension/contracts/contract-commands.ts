import path from 'node:path';
import * as vscode from 'vscode';
import type { BaselineView, ContractView } from '../../protocol/contract.ts';
import { windowFault } from '../fault-words.ts';
import { commands, contractGlob } from '../ids.ts';
import { withImage } from '../images/image-commands.ts';
import { showInformation } from '../messages.ts';
import { progressWords } from '../progress-words.ts';
import { isRow } from '../tree-argument.ts';
import { runReasonWords } from '../trees/run-words.ts';
import type { TreeWords } from '../trees/tree-node.ts';
import { shortDigest } from '../trees/words.ts';
import { visible, visibleLines, withoutIcons } from '../visible-text.ts';
import type { CommandTable, WindowParts } from '../window-parts.ts';
import { contractFileName, contractText, splitCommand } from '../../client/contract-text.ts';

const skipped = '**/{node_modules,.git,dist,.venv}/**';

/** The URI that a command was given: by a code lens (as text), by the explorer (as URI), or by nothing. */
function uriOf(argument: unknown): vscode.Uri | undefined {
  if (argument instanceof vscode.Uri) return argument;
  if (typeof argument === 'string') return vscode.Uri.parse(argument, true);
  return undefined;
}

function isContract(uri: vscode.Uri): boolean {
  return uri.scheme === 'file' && uri.path.endsWith('.contract.jsonc');
}

/** A contract file: the one given, the one in the active editor, or one from a list. Saved before it is returned. */
export async function chooseContract(argument: unknown): Promise<vscode.Uri | undefined> {
  const active = vscode.window.activeTextEditor?.document.uri;
  let uri = uriOf(argument) ?? (active !== undefined && isContract(active) ? active : undefined);
  if (uri === undefined) {
    const found = await vscode.workspace.findFiles(contractGlob, skipped, 500);
    const [only] = found;
    if (only === undefined) {
      const create = vscode.l10n.t('New Contract');
      const answer = await vscode.window.showInformationMessage(
        vscode.l10n.t('There is no contract file (*.contract.jsonc) in this folder yet.'),
        create,
      );
      if (answer === create) await vscode.commands.executeCommand(commands.newContract);
      return undefined;
    }
    uri = found.length === 1 ? only : await pickContract(found);
  }
  if (uri === undefined) return undefined;
  if (!isContract(uri)) {
    throw windowFault(
      'InvalidContract',
      vscode.l10n.t('{0} is not a contract file.', visible(uri.path)),
      vscode.l10n.t('Contracts are local files whose name ends in .contract.jsonc.'),
    );
  }
  // The Kernel reads the file, not the editor.
  const document = vscode.workspace.textDocuments.find((entry) => entry.uri.toString() === uri.toString());
  if (document?.isDirty === true && !(await document.save())) {
    throw windowFault(
      'InvalidContract',
      vscode.l10n.t('The contract has unsaved changes that could not be saved.'),
      vscode.l10n.t('Save it, then try again.'),
    );
  }
  return uri;
}

async function pickContract(found: readonly vscode.Uri[]): Promise<vscode.Uri | undefined> {
  const picked = await vscode.window.showQuickPick(
    found
      .toSorted((a, b) => a.path.localeCompare(b.path))
      .map((uri) => {
        const folder = path.posix.dirname(vscode.workspace.asRelativePath(uri));
        return {
          label: withoutIcons(visible(path.posix.basename(uri.path))),
          description: folder === '.' ? '' : withoutIcons(visible(folder)),
          uri,
        };
      }),
    { title: vscode.l10n.t('Contract'), placeHolder: vscode.l10n.t('Which contract?'), matchOnDescription: true },
  );
  return picked?.uri;
}

/** Runs the baseline of a frozen contract as an operation of the window; what its checks did is in the log. */
export async function runBaseline(parts: WindowParts, contract: ContractView): Promise<BaselineView> {
  const title = visible(contract.contract.title);
  const baseline = await withImage(parts, contract.digest, () =>
    parts.operations.run(vscode.l10n.t('Checking baseline'), title, (token, progress) =>
      parts.link.request('contract/baseline', { digest: contract.digest }, token, (made) => {
        progress(`${progressWords(made, vscode.l10n.t)} · ${title}`);
      }),
    ),
  );
  logBaseline(baseline, parts.log);
  return baseline;
}

/** What each check did, where the window's log can be read; its output may hold anything. */
function logBaseline(baseline: BaselineView, log: vscode.LogOutputChannel): void {
  for (const { id, verdict, tail } of baseline.checks) log.info(`baseline ${id}: ${verdict}\n${visibleLines(tail)}`);
}

/** Throws EscrowError BaselineNotDiscriminating with what the checks did, unless they can tell broken from fixed. */
export function requireDiscriminating(baseline: BaselineView, words: TreeWords): void {
  if (baseline.result === 'discriminates') return;
  const incomplete = baseline.result === 'incomplete';
  const problems = baseline.problems.map((problem) => runReasonWords(problem, words)).join('; ');
  throw windowFault(
    'BaselineNotDiscriminating',
    incomplete
      ? vscode.l10n.t('The baseline did not run to its end: {0}', problems)
      : vscode.l10n.t('The checks cannot tell broken from fixed: {0}', problems),
    incomplete
      ? vscode.l10n.t('Check the health of the container engine, then try again; the log has the output of each check.')
      : vscode.l10n.t('See the log for the output of each check, then change the contract.'),
    { checks: baseline.checks.map(({ id, verdict, tail }) => ({ id, verdict, tail })) },
  );
}

async function writeContract(
  folder: vscode.WorkspaceFolder,
  preset: { readonly instruction: string; readonly writable: readonly string[] },
): Promise<void> {
  const title = await vscode.window.showInputBox({
    title: vscode.l10n.t('New Contract (1/4): Title'),
    prompt: vscode.l10n.t('One line that names the change.'),
    ignoreFocusOut: true,
    validateInput: (value) =>
      value.trim() === '' || value.length > 120 ? vscode.l10n.t('Between 1 and 120 characters.') : undefined,
  });
  if (title === undefined) return;
  const instruction = await vscode.window.showInputBox({
    title: vscode.l10n.t('New Contract (2/4): Instruction'),
    prompt: vscode.l10n.t('What to change and what must stay. The model reads exactly this.'),
    value: preset.instruction,
    ignoreFocusOut: true,
    validateInput: (value) =>
      value.trim() === '' || value.length > 8000 ? vscode.l10n.t('Between 1 and 8000 characters.') : undefined,
  });
  if (instruction === undefined) return;
  const writable = await chooseWritable(folder, preset.writable);
  if (writable === undefined || writable.length === 0) return;
  const check = await vscode.window.showInputBox({
    title: vscode.l10n.t('New Contract (4/4): Check'),
    prompt: vscode.l10n.t('The command that fails now and must pass afterwards. No shell reads it.'),
    placeHolder: 'python3 -m unittest tests.test_usage',
    ignoreFocusOut: true,
    validateInput: (value) =>
      (splitCommand(value)?.length ?? 0) === 0
        ? vscode.l10n.t('A program and its arguments; quotes must be closed.')
        : undefined,
  });
  if (check === undefined) return;
  const text = contractText({
    title: title.trim(),
    instruction: instruction.trim(),
    writable,
    check: splitCommand(check) ?? [],
  });
  await openNewFile(folder, contractFileName(title), text);
}

/** The files that may change: from the folder's files, those of the preset first and marked. */
async function chooseWritable(
  folder: vscode.WorkspaceFolder,
  preset: readonly string[],
): Promise<readonly string[] | undefined> {
  const found = await vscode.workspace.findFiles(new vscode.RelativePattern(folder, '**/*'), skipped, 2000);
  const relative = found
    .map((uri) => path.relative(folder.uri.fsPath, uri.fsPath).split(path.sep).join('/'))
    .filter((file) => !preset.includes(file) && !file.endsWith('.contract.jsonc'))
    .toSorted((a, b) => a.localeCompare(b));
  const picked = await vscode.window.showQuickPick(
    [...preset.map((file) => ({ file, picked: true })), ...relative.map((file) => ({ file, picked: false }))].map(
      (entry) => ({ label: withoutIcons(visible(entry.file)), ...entry }),
    ),
    {
      title: vscode.l10n.t('New Contract (3/4): Writable Files'),
      placeHolder: vscode.l10n.t('The only files that may change'),
      canPickMany: true,
      ignoreFocusOut: true,
    },
  );
  return picked?.map(({ file }) => file);
}

/** Writes beside nothing: a name that is taken gets a number. */
async function openNewFile(folder: vscode.WorkspaceFolder, name: string, text: string): Promise<void> {
  for (let n = 1; n <= 100; n++) {
    const candidate = n === 1 ? name : name.replace('.contract.jsonc', `-${n}.contract.jsonc`);
    const uri = vscode.Uri.joinPath(folder.uri, candidate);
    const taken = await vscode.workspace.fs.stat(uri).then(
      () => true,
      () => false,
    );
    if (taken) continue;
    await vscode.workspace.fs.writeFile(uri, Buffer.from(text, 'utf8'));
    const document = await vscode.workspace.openTextDocument(uri);
    await vscode.window.showTextDocument(document, { preview: false });
    return;
  }
  throw new Error(vscode.l10n.t('There are too many contract files of this name.'));
}

async function chooseFolder(preferred: vscode.Uri | undefined): Promise<vscode.WorkspaceFolder | undefined> {
  const of = preferred === undefined ? undefined : vscode.workspace.getWorkspaceFolder(preferred);
  if (of !== undefined) return of;
  const folders = vscode.workspace.workspaceFolders ?? [];
  if (folders.length > 1) return vscode.window.showWorkspaceFolderPick();
  if (folders[0] === undefined) {
    throw windowFault(
      'NotAGitRepository',
      vscode.l10n.t('No folder is open.'),
      vscode.l10n.t('Open the folder of a git repository first.'),
    );
  }
  return folders[0];
}

/** New, check, freeze, baseline. */
export function contractCommands(parts: WindowParts): CommandTable {
  const { link, log } = parts;
  return {
    [commands.newContract]: async () => {
      const active = vscode.window.activeTextEditor?.document.uri;
      const folder = await chooseFolder(active);
      if (folder === undefined) return;
      const inside = active?.scheme === 'file' && vscode.workspace.getWorkspaceFolder(active) === folder;
      const file =
        inside && !isContract(active)
          ? path.relative(folder.uri.fsPath, active.fsPath).split(path.sep).join('/')
          : undefined;
      await writeContract(folder, { instruction: '', writable: file === undefined ? [] : [file] });
    },
    [commands.newContractFromSelection]: async () => {
      const editor = vscode.window.activeTextEditor;
      if (editor === undefined || editor.document.uri.scheme !== 'file') return;
      const folder = vscode.workspace.getWorkspaceFolder(editor.document.uri);
      if (folder === undefined) {
        throw windowFault(
          'InvalidContract',
          vscode.l10n.t('This file is in no folder of this window.'),
          vscode.l10n.t('Open the folder of its git repository first.'),
        );
      }
      const { start, end } = editor.selection;
      const file = path.relative(folder.uri.fsPath, editor.document.uri.fsPath).split(path.sep).join('/');
      const lines =
        start.line === end.line
          ? vscode.l10n.t('line {0}', start.line + 1)
          : vscode.l10n.t('lines {0} to {1}', start.line + 1, end.line + 1);
      await writeContract(folder, {
        instruction: vscode.l10n.t('In {0}, {1}: ', file, lines),
        writable: [file],
      });
    },
    [commands.checkContract]: async (argument) => {
      const uri = await chooseContract(argument);
      if (uri === undefined) return;
      await parts.ensureConnected();
      const { diagnostics } = await link.request('contract/check', { path: uri.fsPath });
      await vscode.window.showTextDocument(uri, { preview: false });
      // Problems has them all; only what it does not say is said.
      if (diagnostics.length > 0) await vscode.commands.executeCommand('workbench.actions.view.problems');
      if (diagnostics.every(({ severity }) => severity !== 'error')) {
        showInformation(vscode.l10n.t('The contract can be frozen.'));
      }
    },
    [commands.freezeContract]: async (argument) => {
      const uri = await chooseContract(argument);
      if (uri === undefined) return;
      await parts.ensureConnected();
      const frozen = await link.request('contract/freeze', { path: uri.fsPath });
      log.info(`frozen ${uri.fsPath} as ${frozen.digest}`);
      showInformation(
        vscode.l10n.t('Frozen as {0}: {1} files.', shortDigest(frozen.digest), frozen.contract.files.length),
      );
    },
    [commands.runBaseline]: async (argument) => {
      const uri = await chooseContract(argument);
      if (uri === undefined) return;
      await parts.ensureConnected();
      const frozen = await link.request('contract/freeze', { path: uri.fsPath });
      const baseline = await runBaseline(parts, frozen);
      requireDiscriminating(baseline, parts.words);
      showInformation(
        vscode.l10n.t('The baseline discriminates: {0} checks did what the contract says.', baseline.checks.length),
      );
    },
    [commands.openContract]: async (argument) => {
      if (!isRow(argument) || argument.target.kind !== 'contract') return;
      const { root, path: file } = argument.target;
      await vscode.window.showTextDocument(vscode.Uri.file(path.resolve(root, file)), { preview: true });
    },
  };
}
