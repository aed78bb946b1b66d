import { execFile } from 'node:child_process';
import { cp, readdir, readFile } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import * as vscode from 'vscode';
import { commands } from './ids.ts';
import { visible } from './visible-text.ts';
import type { CommandTable } from './window-parts.ts';
import { windowFault } from './fault-words.ts';

const run = promisify(execFile);

/** Title line of an example's README, for the list. */
async function titleOf(folder: string): Promise<string> {
  const text = await readFile(path.join(folder, 'README.md'), 'utf8').catch(() => '');
  return /^#\s+(.+)$/m.exec(text)?.[1] ?? '';
}

/** Copies a shipped example into a folder of its own, makes it a git repository, and opens it. */
export function exampleCommands(extensionPath: string): CommandTable {
  return {
    [commands.openExample]: async () => {
      const shipped = path.join(extensionPath, 'dist', 'examples');
      const entries = await readdir(shipped, { withFileTypes: true });
      const items = await Promise.all(
        entries
          .filter((entry) => entry.isDirectory())
          .map(async (entry) => ({
            label: entry.name,
            detail: visible(await titleOf(path.join(shipped, entry.name))),
          })),
      );
      const picked = await vscode.window.showQuickPick(items, {
        title: vscode.l10n.t('Example'),
        placeHolder: vscode.l10n.t('A small repository with a contract and a rehearsal script'),
      });
      if (picked === undefined) return;
      const [parent] =
        (await vscode.window.showOpenDialog({
          title: vscode.l10n.t('Folder That Shall Hold the Example'),
          openLabel: vscode.l10n.t('Copy Here'),
          canSelectFiles: false,
          canSelectFolders: true,
        })) ?? [];
      if (parent === undefined) return;
      const target = path.join(parent.fsPath, picked.label);
      try {
        await cp(path.join(shipped, picked.label), target, { recursive: true, force: false, errorOnExist: true });
      } catch (error) {
        throw windowFault(
          'UnsafePath',
          vscode.l10n.t('The example was not copied: {0}', error instanceof Error ? error.message : String(error)),
          vscode.l10n.t('Choose a folder that does not have one yet.'),
        );
      }
      const git = (...args: string[]): Promise<unknown> => run('git', args, { cwd: target, timeout: 20_000 });
      await git('init', '--quiet');
      await git('add', '--all');
      // A name for this one commit, where git knows none.
      await git(
        '-c',
        'user.name=Escrow example',
        '-c',
        'user.email=example@localhost',
        'commit',
        '--quiet',
        '-m',
        'Example',
      );
      await vscode.commands.executeCommand('vscode.openFolder', vscode.Uri.file(target), { forceReuseWindow: true });
    },
  };
}
