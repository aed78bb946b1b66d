import * as vscode from 'vscode';

const published = new Map<string, unknown>();

/** Sets a context key when it changed. The call has no answer that matters: a lost one is set again by the next change. */
export function setKey(key: string, value: string | boolean): void {
  if (published.get(key) === value) return;
  published.set(key, value);
  vscode.commands.executeCommand('setContext', key, value).then(undefined, () => published.delete(key));
}

/** Turns keys that are on off while something is done, and on again afterwards. */
export async function pulseKeys(keys: readonly string[], work: () => Promise<void>): Promise<void> {
  const on = keys.filter((key) => published.get(key) === true);
  for (const key of on) await vscode.commands.executeCommand('setContext', key, false);
  try {
    await work();
  } finally {
    for (const key of on) await vscode.commands.executeCommand('setContext', key, published.get(key));
  }
}
