import { unreachable } from '../../protocol/primitives.ts';
import type { ImageList, ImagePrune, ImageRecord, ImageStepResult, ImageView } from '../../protocol/images.ts';
import type { Localize, TreeWords } from '../trees/tree-node.ts';
import { shortDigest } from '../trees/words.ts';
import { visible } from '../visible-text.ts';
import { sizeWords } from './size-words.ts';

function kindWords(kind: ImageView['kind'], t: Localize): string {
  switch (kind) {
    case 'base':
      return t('base');
    case 'flat':
      return t('flat: the files of a base alone');
    case 'dependencies':
      return t('packages');
    case 'steps':
      return t('commands of a contract');
    case 'prepared':
      return t('prepared: sandboxes start from it');
    default:
      return unreachable(kind, 'kind of image');
  }
}

function ownerWords(owner: ImageView['owner'], t: Localize): string {
  switch (owner) {
    case 'this-home':
      return t('made by this Kernel');
    case 'set-up':
      return t('made by npm run setup');
    case 'another-home':
      return t('made by a Kernel with another state folder');
    default:
      return unreachable(owner, 'owner of an image');
  }
}

/** Why a prune would leave an image, by the Kernel's code. */
function keptWords(code: string, t: Localize): string {
  switch (code) {
    case 'current':
      return t('it is the default image');
    case 'session':
      return t('an open session uses it');
    case 'contract':
      return t('a contract uses it');
    case 'container':
      return t('a container uses it');
    case 'below':
      return t('a kept image is built on it');
    case 'not-ours':
      return t('this state folder did not make it');
    case 'usable':
      return t('it can still be used');
    default:
      return code.replaceAll(/[_-]/g, ' ');
  }
}

/** What no engine tells about sizes, by the Kernel's code. */
function unknownWords(code: string, t: Localize): string {
  switch (code) {
    case 'layer_sizes':
      return t('the sizes of some layers');
    case 'engine_overhead':
      return t('what the storage of the engine takes beside the layers');
    default:
      return code.replaceAll('_', ' ');
  }
}

function imageLines(image: ImageView, { t, time }: TreeWords): readonly string[] {
  const name = image.tags[0] ?? image.base;
  const own =
    image.ownBytes === null
      ? t('what it alone holds is not told')
      : t('{0} that no other image has', sizeWords(image.ownBytes));
  return [
    `  ${shortDigest(image.id)}  ${kindWords(image.kind, t)}`,
    ...(name === null ? [] : [`      ${name.startsWith('sha256:') ? shortDigest(name) : visible(name, 200)}`]),
    `      ${t('{0} with all below it; {1}', sizeWords(image.sizeBytes), own)}`,
    `      ${ownerWords(image.owner, t)} · ${time(image.createdAt)}`,
    ...(image.kept === null ? [] : [`      ${t('Kept by a prune: {0}', visible(keptWords(image.kept, t)))}`]),
  ];
}

function notTold(unknown: readonly string[], t: Localize): readonly string[] {
  return unknown.length === 0
    ? []
    : [t('Not told by the engine: {0}', unknown.map((code) => visible(unknownWords(code, t))).join(', '))];
}

/** Escrow's images in the container engine, each with what it takes; the sum counts a shared layer once. Pure. */
export function imageListText(list: ImageList, words: TreeWords): string {
  const { t } = words;
  const count = list.images.length;
  return [
    t('Sandbox images in the container engine'),
    '',
    count === 1 ? t('1 image') : t('{0} images', count),
    t('Together: {0}, each layer counted once', sizeWords(list.totalBytes)),
    ...notTold(list.unknown, t),
    ...list.images.flatMap((image) => ['', ...imageLines(image, words)]),
    '',
  ].join('\n');
}

/** What a prune would remove and what it would leave, or what it did. Pure. */
export function pruneText(prune: ImagePrune, words: TreeWords): string {
  const { t } = words;
  const section = (title: string, images: readonly ImageView[]): readonly string[] =>
    images.length === 0 ? [] : ['', title, ...images.flatMap((image) => imageLines(image, words))];
  return [
    prune.done ? t('Sandbox images that were removed') : t('Sandbox images that would be removed'),
    '',
    prune.done ? t('Freed: {0}', sizeWords(prune.freedBytes)) : t('Would be freed: {0}', sizeWords(prune.freedBytes)),
    ...notTold(prune.unknown, t),
    ...section(prune.done ? t('Removed') : t('Would be removed'), prune.removed),
    ...(prune.failed.length === 0
      ? []
      : [
          '',
          t('Could not be removed'),
          ...prune.failed.map(({ id, reason }) => `  ${shortDigest(id)}  ${visible(reason, 400)}`),
        ]),
    ...section(prune.done ? t('Left') : t('Would stay'), prune.kept),
    '',
  ].join('\n');
}

function stepResultWords(step: ImageStepResult, t: Localize): string {
  switch (step.kind) {
    case 'node':
      return t('Node for the executor');
    case 'pull':
      return t('Pull of the base');
    case 'flatten':
      return t('The base in one layer');
    case 'npm':
      return t('npm packages');
    case 'python':
      return t('Python packages');
    case 'opaque':
      return t('A command of the contract');
    case 'executor':
      return t('The executor of Escrow');
    default:
      return unreachable(step.kind, 'step');
  }
}

/** What a preparation really did, as it was measured and recorded. Pure. */
export function recordText(record: ImageRecord, words: TreeWords): string {
  const { t, number } = words;
  const seconds = (ms: number): string => t('{0} s', number(Math.round(ms / 100) / 10));
  const lines = [
    t('What preparing this sandbox image did'),
    '',
    t('Image: {0}', record.image),
    t('Size: {0} in {1} layers', sizeWords(record.sizeBytes), record.layers.length),
    t('Base: {0}', `${visible(record.base.reference, 400)} ${shortDigest(record.base.digest)}`),
    t('Node: {0}', visible(record.node)),
    t('Executor: {0}', shortDigest(record.executor)),
    t('Took {0}', seconds(record.ms)),
    t(
      'Approved by {0} ({1}){2}',
      visible(record.approval.by),
      record.approval.channel,
      record.approval.standing ? t(', now and later') : '',
    ),
    '',
  ];
  for (const [index, step] of record.steps.entries()) {
    lines.push(
      `${index + 1}. ${stepResultWords(step, t)}: ${step.made ? seconds(step.ms) : t('was there already')}`,
      ...[
        step.artefacts === null ? undefined : t('archives: {0}', number(step.artefacts)),
        step.downloadedBytes === null ? undefined : t('fetched: {0}', sizeWords(step.downloadedBytes)),
        step.files === null ? undefined : t('files put in: {0}', number(step.files)),
        step.bytes === null ? undefined : t('bytes put in: {0}', sizeWords(step.bytes)),
        step.tree === null ? undefined : t('digest of all of them:'),
        step.tree === null ? undefined : `  ${step.tree}`,
      ].flatMap((fact) => (fact === undefined ? [] : [`   ${fact}`])),
    );
  }
  lines.push('', t('The plan that was approved:'), record.plan, '');
  return lines.join('\n');
}
