import * as vscode from 'vscode';
import type { AwaySummary } from '../protocol/views.ts';
import { views } from './ids.ts';
import { offer } from './messages.ts';
import { outcomeWords, triggerWords } from './trees/words.ts';
import { visible } from './visible-text.ts';

/** One summary of what happened while no window of this folder was there. */
export async function tellAway(summary: AwaySummary): Promise<void> {
  const [first] = summary.items;
  if (first === undefined) return;
  const pending = summary.items.filter((item) => item.pending).length;
  const what = (item: AwaySummary['items'][number]): string =>
    vscode.l10n.t(
      '"{0}": {1}{2}',
      visible(item.title, 80),
      item.outcome === null ? vscode.l10n.t('still open') : outcomeWords(item.outcome, vscode.l10n.t),
      item.trigger === null ? '' : `, ${triggerWords(item.trigger, vscode.l10n.t)}`,
    );
  const text =
    summary.items.length === 1
      ? vscode.l10n.t('While no window was open: {0}.', what(first))
      : vscode.l10n.t(
          'While no window was open, {0} sessions ended. The latest: {1}.',
          summary.items.length,
          what(first),
        );
  const more = pending > 0 ? ` ${vscode.l10n.t('{0} could not be confirmed as stopped.', pending)}` : '';
  const severity = pending > 0 ? 'warning' : 'information';
  if (await offer(severity, `${text}${more}`, vscode.l10n.t('Show Sessions')))
    await vscode.commands.executeCommand(`${views.sessions}.focus`);
}
