import { unreachable } from '../../protocol/primitives.ts';
import type { Localize } from '../trees/tree-node.ts';
import type { LineEnds, Unseen } from './unseen-changes.ts';

function lineEndWords(ends: LineEnds, t: Localize): string {
  return ends === 'mixed' ? t('several kinds') : ends.toUpperCase();
}

/** What a diff does not show of a file, for whoever decides about its bytes. */
export function unseenWords(unseen: Unseen, t: Localize): string {
  switch (unseen.kind) {
    case 'binary':
      return t('it is binary: the editor shows nothing of it');
    case 'not-text':
      return t('it is not UTF-8: different bytes may look the same');
    case 'white-space':
      return unseen.lines === null
        ? t(
            'it is too different to compare: changes of white space may be hidden (diffEditor.ignoreTrimWhitespace is on)',
          )
        : unseen.lines === 1
          ? t('1 line differs only in white space, which the diff may hide (diffEditor.ignoreTrimWhitespace is on)')
          : t(
              '{0} lines differ only in white space, which the diff may hide (diffEditor.ignoreTrimWhitespace is on)',
              unseen.lines,
            );
    case 'invisible':
      return unseen.lines === 1
        ? t('1 changed line holds characters that may not be seen: {0}', unseen.names.join(' '))
        : t('{0} changed lines hold characters that may not be seen: {1}', unseen.lines, unseen.names.join(' '));
    case 'line-ends':
      if (unseen.before === unseen.after) return t('lines that look the same end in another way (CR, LF)');
      return t('its line ends change from {0} to {1}', lineEndWords(unseen.before, t), lineEndWords(unseen.after, t));
    case 'byte-order-mark':
      return t('its byte order mark comes or goes');
    case 'long-lines':
      return unseen.lines === 1
        ? t('1 changed line is longer than the {0} characters that the editor draws', unseen.limit)
        : t('{0} changed lines are longer than the {1} characters that the editor draws', unseen.lines, unseen.limit);
    case 'executable':
      return unseen.now ? t('it can be started as a program') : t('it can no longer be started as a program');
    default:
      return unreachable(unseen, 'unseen change');
  }
}
