import * as vscode from 'vscode';
import { EscrowError } from '../protocol/errors.ts';
import { nextStep } from './next-step.ts';
import { visible, visibleLines, withoutLinks } from './visible-text.ts';

/** Text from anywhere as the words of a notification: nothing hidden, no link. */
export function notificationText(text: string): string {
  return withoutLinks(visible(text, 600));
}

/** What went wrong and what to do next; an action where one helps. Cancelled by the person: silence. */
export async function showError(error: unknown, log: vscode.LogOutputChannel): Promise<void> {
  if (error instanceof vscode.CancellationError || EscrowError.is(error, 'Cancelled')) return;
  const showLog = vscode.l10n.t('Show Log');
  if (!EscrowError.is(error)) {
    log.error(error instanceof Error ? error : String(error));
    const text = error instanceof Error ? error.message : String(error);
    const chosen = await vscode.window.showErrorMessage(notificationText(text), showLog);
    if (chosen === showLog) log.show();
    return;
  }
  log.error(`${error.code}: ${visibleLines(error.message)} ${visibleLines(JSON.stringify(error.details))}`);
  const action = nextStep(error.code, vscode.l10n.t);
  const chosen = await vscode.window.showErrorMessage(
    notificationText(`${error.message} ${error.next}`),
    ...(action === undefined ? [] : [action.title]),
    showLog,
  );
  if (chosen === showLog) log.show();
  else if (chosen !== undefined && action !== undefined)
    await vscode.commands.executeCommand(action.command, action.argument);
}

/** A calm line, only where no view could have shown it. */
export function showInformation(text: string): void {
  void vscode.window.showInformationMessage(notificationText(text));
}
