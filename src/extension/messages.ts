import * as vscode from 'vscode';
import { EscrowError } from '../protocol/errors.ts';
import { commands, settings } from './ids.ts';
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
  const action = actionFor(error);
  const chosen = await vscode.window.showErrorMessage(
    notificationText(`${error.message} ${error.next}`),
    ...(action === undefined ? [] : [action.title]),
    showLog,
  );
  if (chosen === showLog) log.show();
  else if (chosen !== undefined && action !== undefined)
    await vscode.commands.executeCommand(action.command, action.argument);
}

interface NextStep {
  readonly title: string;
  readonly command: string;
  readonly argument?: string;
}

/** The step that the error's words name, where a command does it. */
function actionFor(error: EscrowError): NextStep | undefined {
  switch (error.code) {
    case 'NoKernel':
    case 'KernelDraining':
      return { title: vscode.l10n.t('Start Kernel'), command: commands.startKernel };
    case 'EngineUnavailable':
    case 'InferenceUnavailable':
    case 'InferenceTooOld':
      return { title: vscode.l10n.t('Check Health'), command: commands.doctor };
    case 'EngineNotApproved':
      return { title: vscode.l10n.t('Approve Server…'), command: commands.approveEngine };
    case 'ImageUnavailable':
    case 'ImageNotApproved':
      return { title: vscode.l10n.t('Prepare Image…'), command: commands.prepareImage };
    case 'ExecutionDisabled':
      return { title: openSettings(), command: 'workbench.action.openSettings', argument: settings.executionEnabled };
    case 'RuntimeTooOld':
      return { title: openSettings(), command: 'workbench.action.openSettings', argument: settings.kernelNode };
    case 'NotController':
      return { title: vscode.l10n.t('Attach…'), command: commands.attachSession };
    case 'BudgetSpent':
      return { title: vscode.l10n.t('Allow More Attempts…'), command: commands.extendBudget };
    case 'NotVerified':
      return { title: vscode.l10n.t('Show Evidence'), command: commands.showEvidence };
    case 'VersionMismatch':
      return { title: vscode.l10n.t('Reload Window'), command: 'workbench.action.reloadWindow' };
    default:
      return undefined;
  }
}

function openSettings(): string {
  return vscode.l10n.t('Open Settings');
}

/** A calm line, only where no view could have shown it. */
export function showInformation(text: string): void {
  void vscode.window.showInformationMessage(notificationText(text));
}
