import * as vscode from 'vscode';
import { EscrowWindow } from './escrow-window.ts';
import { notificationText } from './visible-text.ts';

let current: EscrowWindow | undefined;

/** VS Code calls it at the first view, contract file or command of ours. */
export async function activate(context: vscode.ExtensionContext): Promise<void> {
  try {
    current = await EscrowWindow.open(context);
    context.subscriptions.push(current);
  } catch (error) {
    const text = error instanceof Error ? error.message : String(error);
    void vscode.window.showErrorMessage(
      notificationText(vscode.l10n.t('Escrow could not start in this window: {0}', text)),
    );
    throw error;
  }
}

/** VS Code waits about five seconds for it, and does not call it when the extension host dies. */
export async function deactivate(): Promise<void> {
  await current?.close();
  current = undefined;
}
