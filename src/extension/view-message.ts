import type { TreeWords } from './trees/tree-node.ts';
import { visible } from './visible-text.ts';
import type { WindowState } from './window-state.ts';

/** The line above a view's rows: since when they may be wrong, and (once, in the first view) why. */
export function viewMessage(state: WindowState, { t, time }: TreeWords, length: 'full' | 'short'): string {
  const { connection, lastHeardAt } = state;
  if (connection.kind === 'lost') {
    const since = lastHeardAt === null ? '' : t('Not connected; last observed {0}.', time(lastHeardAt));
    if (length === 'short') return since;
    const next = connection.retrying ? t('Trying again.') : visible(connection.next, 300);
    return [since, visible(connection.reason, 300), next].filter((part) => part !== '').join(' ');
  }
  if (connection.kind === 'connected' && !connection.answering) return silentWords(lastHeardAt, { t, time });
  if (connection.kind === 'connected' && connection.catchingUp) return t('Catching up…');
  return '';
}

/** For a Kernel whose socket is open and that says nothing. */
export function silentWords(lastHeardAt: number | null, { t, time }: Pick<TreeWords, 't' | 'time'>): string {
  return lastHeardAt === null
    ? t('The Kernel does not answer.')
    : t('The Kernel does not answer; last observed {0}.', time(lastHeardAt));
}
