import * as vscode from 'vscode';

const published = new Map<string, unknown>();

/** Sets a context key when it changed. The call has no answer that matters: a lost one is set again by the next change. */
export function setKey(key: string, value: string | boolean): void {
  if (published.get(key) === value) return;
  published.set(key, value);
  vscode.commands.executeCommand('setContext', key, value).then(undefined, () => published.delete(key));
}
