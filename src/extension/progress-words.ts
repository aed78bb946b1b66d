import type { Progress } from '../client/kernel-connection.ts';
import { ImageStep } from '../protocol/images.ts';
import { stepWords } from './images/step-words.ts';
import type { Localize } from './trees/tree-node.ts';
import { visible } from './visible-text.ts';

function codeWords(code: string, detail: string, t: Localize): string {
  const step = ImageStep.shape.kind.safeParse(code);
  if (step.success) return stepWords({ kind: step.data, subject: detail }, t);
  switch (code) {
    case 'waiting':
      return t('Waits for its turn');
    case 'check':
      return t('Check {0}', visible(detail));
    case 'pack':
      return t('The layer with the packages of {0}', visible(detail));
    case 'done':
      return t('Done');
    default:
      // A newer Kernel's: better its code than nothing.
      return visible(detail === '' ? code : `${code} ${detail}`);
  }
}

/** What a long request says of itself on the way, for its row: how far (a narrow row cuts the rest), which step, of what. */
export function progressWords({ code, detail, percent }: Progress, t: Localize): string {
  const words = codeWords(code, detail, t);
  return percent === null ? words : `${percent} % · ${words}`;
}
