import { faultWords, inOneLine, type Fault } from './fault-words.ts';
import type { TreeWords } from './trees/tree-node.ts';
import { visible } from './visible-text.ts';
import { recordBlocked, type WindowState } from './window-state.ts';

/** What each view asks the Kernel for as a whole. */
const asked = { sessions: 'list', models: 'models', health: 'status' } as const;

/** What has to be mended before a Kernel can be started. */
const mendedFirst: ReadonlySet<Fault['code']> = new Set([
  'StorageFull',
  'StorageUnwritable',
  'RuntimeTooOld',
  'InvalidSettings',
  'UnsafePath',
]);

/** The line above a view's rows: since when they may be wrong, and (once, in the first view) why. */
export function viewMessage(state: WindowState, words: TreeWords, view: keyof typeof asked): string {
  const { t, time, home } = words;
  const { connection, lastHeardAt } = state;
  switch (connection.kind) {
    case 'off':
    case 'connecting':
      return '';
    case 'lost': {
      const since = lastHeardAt === null ? '' : t('Not connected; last observed {0}.', time(lastHeardAt));
      if (view !== 'sessions') return since;
      const why = visible(inOneLine(faultWords(connection.fault, home, t)), 500);
      const after = connection.retrying
        ? t('Escrow tries again by itself.')
        : mendedFirst.has(connection.fault.code)
          ? t('Then start the Kernel.')
          : '';
      return [since, why, after].filter((part) => part !== '').join(' ');
    }
    case 'connected':
      break;
    default:
      return connection satisfies never;
  }
  if (!connection.answering) return silentWords(lastHeardAt, words);
  if (connection.catchingUp) return t('Catching up…');
  const refused = state.unrefreshed.get(asked[view]);
  if (refused !== undefined) {
    return t('Not current: {0}', visible(inOneLine(faultWords(refused, home, t)), 500));
  }
  return view === 'sessions' ? blockedWords(state, words) : '';
}

/** Said while nothing can be recorded: what the rows say of work that ran is then the past. */
function blockedWords(state: WindowState, { t, home }: TreeWords): string {
  switch (recordBlocked(state)) {
    case 'full':
      return t(
        'Nothing can be recorded: no space is left on the disk that holds {0}. What runs is stopped; free space there, and its end is recorded.',
        visible(home, 300),
      );
    case 'unwritable':
      return t(
        'Nothing can be recorded: {0} cannot be written. What runs is stopped; make it writable, and its end is recorded.',
        visible(home, 300),
      );
    default:
      return '';
  }
}

/** For a Kernel whose socket is open and that says nothing. */
export function silentWords(lastHeardAt: number | null, { t, time }: Pick<TreeWords, 't' | 'time'>): string {
  return lastHeardAt === null
    ? t('The Kernel does not answer.')
    : t('The Kernel does not answer; last observed {0}.', time(lastHeardAt));
}
