import path from 'node:path';
import * as vscode from 'vscode';
import { homePath } from '../../protocol/home.ts';
import { commands, views, walkthroughId } from '../ids.ts';
import type { CommandTable, WindowParts } from '../window-parts.ts';

/** Start, restart, look at it closely, read its log. */
export function kernelCommands(parts: WindowParts): CommandTable {
  const { link, observer, store, log } = parts;
  return {
    [commands.startKernel]: () => parts.ensureConnected(),
    [commands.restartKernel]: async () => {
      if (link.connected) {
        const busy = store.state.status?.value.active.length ?? 0;
        if (busy > 0) {
          // What the restart ends cannot be taken up again: the one place that asks with a modal.
          const restart = vscode.l10n.t('Settle and Restart');
          const answer = await vscode.window.showWarningMessage(
            vscode.l10n.t('The Kernel is at work.'),
            {
              modal: true,
              detail: vscode.l10n.t(
                'What runs is settled first: its bytes are collected and its container is stopped.',
              ),
            },
            restart,
          );
          if (answer !== restart) return;
        }
        const ended = link.ended();
        await link.request('kernel/stop', { settle: true });
        await ended;
      }
      await parts.ensureConnected();
    },
    [commands.doctor]: async () => {
      await parts.ensureConnected();
      await vscode.commands.executeCommand(`${views.health}.focus`);
      await vscode.window.withProgress({ location: { viewId: views.health } }, async () => {
        observer.putStatus(await link.request('kernel/probe', {}));
        await observer.refresh('models');
      });
    },
    [commands.showLog]: () => {
      log.show(true);
      return Promise.resolve();
    },
    [commands.showKernelLog]: async () => {
      const file = vscode.Uri.file(path.join(homePath(), 'kernel.log'));
      await vscode.window.showTextDocument(file, { preview: true });
    },
    [commands.openWalkthrough]: async () => {
      const id = `${parts.context.extension.id}#${walkthroughId}`;
      await vscode.commands.executeCommand('workbench.action.openWalkthrough', id, false);
    },
  };
}
