import type { ImagePlan } from '../../protocol/images.ts';
import type { Localize } from '../trees/tree-node.ts';
import { visible } from '../visible-text.ts';
import { sizeWords } from './size-words.ts';
import { stepWords } from './step-words.ts';

/** What nobody says before it is downloaded, by the Kernel's code. */
function unknownWords(code: string, t: Localize): string {
  switch (code) {
    case 'base_size':
      return t('the size of the base');
    case 'node_size':
      return t('the size of Node');
    case 'npm_sizes':
      return t('the sizes of npm packages');
    case 'python_sizes':
      return t('the sizes of Python packages');
    case 'step_effects':
      return t('what a command of the contract fetches');
    default:
      return code.replaceAll('_', ' ');
  }
}

/** How much would be downloaded, with what nobody can say before. */
export function downloadWords(plan: Pick<ImagePlan, 'unknown' | 'downloadBytes' | 'steps'>, t: Localize): string {
  if (plan.unknown.length === 0) {
    return plan.steps.some((step) => step.network && !step.cached) ? sizeWords(plan.downloadBytes) : t('nothing');
  }
  const unknown = visible(plan.unknown.map((code) => unknownWords(code, t)).join(', '));
  return plan.downloadBytes === 0
    ? t('not known before ({0})', unknown)
    : t('at least {0}; not known before: {1}', sizeWords(plan.downloadBytes), unknown);
}

/** Where something comes from: a host's name, or the place that a client's own configuration names. */
function sourceWords(source: string, t: Localize): string {
  switch (source) {
    case 'engine-configuration':
      return t('the registry that the container engine is set to');
    case 'npm-configuration':
      return t('the registry that npm is set to');
    case 'pip-configuration':
      return t('the index that pip is set to');
    default:
      return visible(source);
  }
}

/** What preparing an image would do, for a person who is to say yes or no: everything that comes from outside or runs. */
export function planText(plan: ImagePlan, t: Localize): string {
  const lines = [
    t('What preparing this sandbox image would do'),
    '',
    t('Base: {0}', visible(plan.base.reference, 400)),
    t('Download: {0}', downloadWords(plan, t)),
    t('Disk set aside while it is made: {0}', sizeWords(plan.reservedBytes)),
    ...(plan.freeBytes === null ? [] : [t('Disk free: {0}', sizeWords(plan.freeBytes))]),
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
      lines.push(`   ${t('from {0}', step.sources.map((source) => sourceWords(source, t)).join(', '))}`);
    for (const artefact of step.artefacts) {
      const bytes = artefact.sizeBytes === null ? '' : `, ${sizeWords(artefact.sizeBytes)}`;
      lines.push(
        `   ${visible(artefact.name)} ${visible(artefact.version)}${bytes}`,
        ...(artefact.hashes.length > 1 ? [`     ${t('with one of these hashes:')}`] : []),
        ...artefact.hashes.map((hash) =>
          artefact.hashes.length > 1 ? `       ${visible(hash)}` : `     ${t('with the hash {0}', visible(hash))}`,
        ),
      );
    }
  }
  lines.push('', t('Your answer is bound to exactly this plan:'), plan.plan, '');
  return lines.join('\n');
}
