import * as vscode from 'vscode';
import { EscrowError } from '../protocol/errors.ts';
import { homePath } from '../protocol/home.ts';
import { faultWords, inOneLine, type Fault } from './fault-words.ts';
import { nextStep } from './next-step.ts';
import { notificationText, visibleLines } from './visible-text.ts';

/** What went wrong and what to do next; an action where one helps. Cancelled by the person: silence. */
export async function showError(error: unknown, log: vscode.LogOutputChannel): Promise<void> {
  if (error instanceof vscode.CancellationError || EscrowError.is(error, 'Cancelled')) return;
  const fault: Fault = EscrowError.is(error) ? error : { code: null, message: '', next: '', details: {} };
  if (EscrowError.is(error)) {
    log.error(`${error.code}: ${visibleLines(error.message)} ${visibleLines(JSON.stringify(error.details))}`);
  } else {
    log.error(error instanceof Error ? error : String(error));
  }
  const showLog = vscode.l10n.t('Show Log');
  const action = nextStep(fault, vscode.l10n.t);
  const chosen = await vscode.window.showErrorMessage(
    notificationText(inOneLine(faultWords(fault, homePath(), vscode.l10n.t))),
    ...(action === undefined ? [] : [action.title]),
    showLog,
  );
  if (chosen === showLog) log.show();
  else if (chosen !== undefined && action !== undefined)
    await vscode.commands.executeCommand(action.command, action.argument);
}

/*
 * Words that hold a title, a name or a reason reach a notification by these alone: VS Code itself makes links of what
 * looks like one, to commands too.
 */

/** A calm line, only where no view could have shown it. */
export function showInformation(text: string): void {
  void vscode.window.showInformationMessage(notificationText(text));
}

/** As `showInformation`, for what needs eyes. */
export function showWarning(text: string): void {
  void vscode.window.showWarningMessage(notificationText(text));
}

/** A line with one thing to do about it; resolves with whether it was chosen. */
export async function offer(severity: 'information' | 'warning', text: string, action: string): Promise<boolean> {
  const show = severity === 'warning' ? vscode.window.showWarningMessage : vscode.window.showInformationMessage;
  return (await show<string>(notificationText(text), action)) === action;
}
