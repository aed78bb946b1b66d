import { unreachable } from '../../protocol/primitives.ts';
import type { ImageStep } from '../../protocol/images.ts';
import type { Localize } from '../trees/tree-node.ts';
import { visible } from '../visible-text.ts';

/** A step of preparing an image, as its plan and its progress name it. */
export function stepWords(step: Pick<ImageStep, 'kind' | 'subject'>, t: Localize): string {
  const subject = visible(step.subject, 400);
  switch (step.kind) {
    case 'node':
      return t('Node for the executor');
    case 'pull':
      return t('Pull the base {0}', subject);
    case 'flatten':
      return t('Take the base {0} apart into one layer', subject);
    case 'npm':
      return t('npm packages of {0}', subject);
    case 'python':
      return t('Python packages of {0}', subject);
    case 'opaque':
      return t('A command of the contract: {0}', subject);
    case 'executor':
      return t('The executor of Escrow');
    default:
      return unreachable(step.kind, 'step');
  }
}
