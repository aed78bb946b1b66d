import path from 'node:path';
import * as vscode from 'vscode';
import { homePath } from '../../protocol/home.ts';
import { pulseKeys } from '../context-key.ts';
import { windowFault } from '../fault-words.ts';
import { commands, contextKeys, views, walkthroughId } from '../ids.ts';
import { isRow } from '../tree-argument.ts';
import { assertedReviewer } from '../review/asserted-reviewer.ts';
import { visible, withoutIcons } from '../visible-text.ts';
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
      await vscode.workspace.fs.stat(file).then(undefined, () => {
        throw windowFault(
          'NotFound',
          vscode.l10n.t('There is no log of a Kernel in {0}.', homePath()),
          vscode.l10n.t('Start the Kernel first.'),
        );
      });
      await vscode.window.showTextDocument(file, { preview: true });
    },
    [commands.openSetting]: async (argument) => {
      if (!isRow(argument) || argument.target.kind !== 'setting') return;
      await vscode.commands.executeCommand('workbench.action.openSettings', argument.target.name);
    },
    [commands.approveEngine]: async () => {
      await parts.ensureConnected();
      const host = await vscode.window.showInputBox({
        title: vscode.l10n.t('Approve a Local Inference Server'),
        prompt: vscode.l10n.t(
          'Address of a server on this machine that speaks chat completions. Prompts with your files will be sent to it.',
        ),
        placeHolder: 'http://127.0.0.1:8080',
        ignoreFocusOut: true,
        validateInput: (value) =>
          URL.canParse(value.trim()) ? undefined : vscode.l10n.t('An address like {0}.', 'http://127.0.0.1:8080'),
      });
      if (host === undefined) return;
      await link.request('engine/approve', { host: host.trim(), reviewer: await assertedReviewer(undefined) });
      await observer.refresh('models');
      await vscode.commands.executeCommand(`${views.models}.focus`);
    },
    [commands.revokeEngine]: async () => {
      await parts.ensureConnected();
      const { approvals } = await link.request('engine/list', {});
      const picked = await vscode.window.showQuickPick(
        approvals.map(({ host }) => ({ label: withoutIcons(visible(host)), host })),
        {
          title: vscode.l10n.t('Revoke a Local Inference Server'),
          placeHolder:
            approvals.length === 0
              ? vscode.l10n.t('No server is approved.')
              : vscode.l10n.t('Which one gets no more prompts?'),
        },
      );
      if (picked === undefined) return;
      await link.request('engine/revoke', { host: picked.host, reviewer: await assertedReviewer(undefined) });
      await observer.refresh('models');
    },
    [commands.openWalkthrough]: async () => {
      const id = `${parts.context.extension.id}#${walkthroughId}`;
      // A step is ticked when its key becomes true; one that was true before the walkthrough opened would never be.
      await pulseKeys([contextKeys.engineReady, contextKeys.imageReady], async () => {
        await vscode.commands.executeCommand('workbench.action.openWalkthrough', id, false);
      });
    },
  };
}
