import { unreachable } from '../../protocol/primitives.ts';
import type { ImagePlan, ImageStep } from '../../protocol/images.ts';
import type { Localize } from '../trees/tree-node.ts';
import { visible } from '../visible-text.ts';

function mebibytes(bytes: number): string {
  return `${(bytes / 1024 ** 2).toFixed(1)} MiB`;
}

function stepWords(step: ImageStep, t: Localize): string {
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

/** What preparing an image would do, for a person who is to say yes or no: everything that comes from outside or runs. */
export function planText(plan: ImagePlan, t: Localize): string {
  const lines = [
    t('What preparing this sandbox image would do'),
    '',
    t('Base: {0}', visible(plan.base.reference, 400)),
    plan.unknown.length === 0
      ? t('Download: {0}', mebibytes(plan.downloadBytes))
      : t(
          'Download: at least {0}; not known before: {1}',
          mebibytes(plan.downloadBytes),
          visible(plan.unknown.join(', ')),
        ),
    t('Disk set aside: {0}', mebibytes(plan.reservedBytes)),
    ...(plan.freeBytes === null ? [] : [t('Disk free: {0}', mebibytes(plan.freeBytes))]),
    '',
  ];
  for (const [index, step] of plan.steps.entries()) {
    const notes = [
      step.cached ? t('done before') : undefined,
      step.network ? t('reaches for the network') : undefined,
      step.where === 'host' ? t('on this machine') : step.where === 'engine' ? t('in the engine') : t('in a container'),
    ].filter((note) => note !== undefined);
    lines.push(`${index + 1}. ${stepWords(step, t)} (${notes.join(', ')})`);
    if (step.argv !== null) lines.push(`   ${step.argv.map((word) => visible(JSON.stringify(word), 4000)).join(' ')}`);
    if (step.sources.length > 0)
      lines.push(`   ${t('from {0}', step.sources.map((source) => visible(source)).join(', '))}`);
    for (const artefact of step.artefacts) {
      const size = artefact.sizeBytes === null ? '' : `, ${mebibytes(artefact.sizeBytes)}`;
      lines.push(
        `   ${visible(artefact.name)} ${visible(artefact.version)}${size}`,
        ...artefact.hashes.map((hash) => `     ${visible(hash)}`),
      );
    }
  }
  lines.push('', t('Your answer is bound to exactly this plan: {0}', plan.plan), '');
  return lines.join('\n');
}
