import { userInfo } from 'node:os';
import type { ImagePlan, ImageRecord, ImageStep, ImageView } from '../../protocol/images.ts';
import type { ContractDigest } from '../../protocol/primitives.ts';
import { unreachable } from '../../protocol/primitives.ts';
import { given, text, type Command, type Invocation } from '../command.ts';
import { exitCodes, UsageError } from '../exit-code.ts';
import { short } from '../format.ts';
import type { KernelLink } from '../kernel-access.ts';
import { styled, type Output } from '../output.ts';
import { resolveContract } from './contract.ts';

const megabytes = (bytes: number): string => `${(bytes / 1e6).toFixed(bytes < 1e7 ? 1 : 0)} MB`;
const shortId = (id: string): string => short(id.replace(/^sha256:/, ''));

/** Whose image: a contract's, a base's, or the default one. */
type Which = { readonly digest: ContractDigest } | { readonly base: string } | Record<string, never>;

const whichOptions = {
  base: { type: 'string', value: 'IMAGE', help: 'A base image instead of a contract.' },
} as const;

async function whichOf(invocation: Invocation, kernel: KernelLink): Promise<Which> {
  const [typed] = invocation.args;
  const base = text(invocation, 'base');
  if (typed !== undefined && base !== undefined) throw new UsageError('name a contract or --base, not both');
  if (base !== undefined) return { base };
  return typed === undefined ? {} : { digest: (await resolveContract(kernel, typed)).digest };
}

function stepWords(step: ImageStep): string {
  const count = step.artefacts.length;
  switch (step.kind) {
    case 'node':
      return 'fetch a Node for the sandbox';
    case 'pull':
      return `pull ${step.subject}`;
    case 'flatten':
      return `take the files of ${step.subject}, without its configuration, and add Node`;
    case 'npm':
      return `install ${count} npm packages of ${step.subject}`;
    case 'python':
      return `install the wheels of ${count} requirements of ${step.subject}`;
    case 'opaque':
      return 'run as root in the image';
    case 'executor':
      return 'add the executor';
    default:
      return unreachable(step.kind, 'step');
  }
}

const placeWords = { host: 'on this machine', engine: 'by the container engine', container: 'in a container' } as const;

function printPlan(out: Output, plan: ImagePlan, whole: boolean): void {
  out.line(
    styled('bold', plan.base.reference),
    styled(
      'dim',
      ` · ${plan.base.digest === null ? 'not there yet' : `${shortId(plan.base.digest)}, ${megabytes(plan.base.sizeBytes ?? 0)}`}`,
    ),
  );
  for (const step of plan.steps) {
    out.line(step.cached ? styled('green', 'there  ') : styled('yellow', 'to do  '), ` ${stepWords(step)}`);
    if (step.cached) continue;
    const network = step.network ? `network: ${step.sources.join(', ') || 'yes'}` : 'no network';
    out.line(styled('dim', `         ${placeWords[step.where]} · ${network}`));
    // In full and never cut: it is what the yes is for.
    if (step.argv !== null)
      out.line(
        `         $ ${step.argv.map((word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : JSON.stringify(word))).join(' ')}`,
      );
    const shown = whole ? step.artefacts : step.artefacts.slice(0, 5);
    for (const { name, version, hashes } of shown) {
      out.line(
        styled(
          'dim',
          `         ${name} ${version} ${hashes[0] ?? ''}${hashes.length > 1 ? ` or ${hashes.length - 1} more` : ''}`,
        ),
      );
    }
    if (shown.length < step.artefacts.length) {
      out.line(styled('dim', `         and ${step.artefacts.length - shown.length} more (--all shows them)`));
    }
  }
  if (plan.state === 'ready') {
    out.line(styled('green', 'ready'), ` · ${plan.image?.reference ?? ''}: nothing is to be done`);
    return;
  }
  if (plan.downloadBytes > 0) out.line(`download   ${megabytes(plan.downloadBytes)}`);
  if (plan.unknown.length > 0) out.line(`not known  ${plan.unknown.join(', ').replaceAll('_', ' ')}`);
  out.line(
    `set aside  ${megabytes(plan.reservedBytes)} of disk`,
    plan.freeBytes === null ? '' : `, ${megabytes(plan.freeBytes)} are free`,
  );
  if (plan.approval !== null) out.line(`approved   by ${plan.approval.by} (as asserted), standing for exactly this`);
  out.line(styled('dim', `plan       ${plan.plan}`));
}

function printRecord(out: Output, record: ImageRecord): void {
  out.line(
    styled('green', 'prepared'),
    ` · ${record.reference} · ${megabytes(record.sizeBytes)} · ${(record.ms / 1000).toFixed(1)} s`,
  );
  for (const step of record.steps) {
    const facts = [
      `${(step.ms / 1000).toFixed(1)} s`,
      ...(step.artefacts === null ? [] : [`${step.artefacts} fetched`]),
      ...(step.downloadedBytes === null ? [] : [`${megabytes(step.downloadedBytes)} downloaded`]),
      ...(step.files === null || step.bytes === null ? [] : [`${step.files} files, ${megabytes(step.bytes)}`]),
    ];
    out.line(styled('dim', `${step.kind.padEnd(10)} ${facts.join(' · ')}`));
  }
}

const plan: Command = {
  path: ['image', 'plan'],
  summary: 'Show what preparing an image would do; touch nothing.',
  args: '[CONTRACT]',
  options: { ...whichOptions, all: { type: 'boolean', help: 'List every package.' } },
  details: ['CONTRACT is a file or a digest; without it, the default image.'],
  exits: { 1: 'something is to be done', 5: 'it cannot be prepared' },
  async run(invocation) {
    const { kernel, out } = invocation;
    const link = await kernel.connect();
    const found = await link.call('image/plan', await whichOf(invocation, link));
    printPlan(out, found, given(invocation, 'all'));
    out.value(found);
    return found.state === 'ready' ? exitCodes.ok : exitCodes.failed;
  },
};

/** A yes, with the name it is recorded under; undefined: no. */
async function decide(
  invocation: Invocation,
  question: string,
): Promise<{ name: string; channel: 'tty' | 'script' } | undefined> {
  const named = text(invocation, 'reviewer');
  if (given(invocation, 'yes')) {
    if (named === undefined) throw new UsageError('--reviewer is missing: a yes needs a name');
    return { name: named, channel: 'script' };
  }
  if (!invocation.out.interactive) throw new UsageError('nobody can be asked here: say --yes with --reviewer NAME');
  if (!(await invocation.confirm(question))) return undefined;
  return { name: named ?? userInfo().username, channel: 'tty' };
}

const prepare: Command = {
  path: ['image', 'prepare'],
  summary: 'Prepare the image of a contract, of a base, or the default one.',
  args: '[CONTRACT]',
  options: {
    ...whichOptions,
    all: { type: 'boolean', help: 'List every package.' },
    yes: { type: 'boolean', help: 'Say yes without being asked; needs --reviewer.' },
    always: { type: 'boolean', help: 'Let the yes stand for exactly this set of packages and this base.' },
    reviewer: { type: 'string', value: 'NAME', help: 'Who says yes. Recorded as asserted.' },
  },
  details: [
    'Shows the plan and asks. The yes is recorded with what it was a yes to; a standing one needs no further question as long as nothing in the plan changes. Steps that a contract runs as root are asked for each time.',
    'Ctrl-C cancels; what was begun is taken away again.',
  ],
  exits: { 1: 'the answer was no', 4: 'the plan has changed meanwhile', 5: 'it could not be prepared' },
  async run(invocation) {
    const { kernel, out } = invocation;
    const link = await kernel.connect();
    const which = await whichOf(invocation, link);
    const shown = await link.call('image/plan', which);
    printPlan(out, shown, given(invocation, 'all'));
    if (shown.state === 'ready') {
      out.value({ plan: shown, record: null });
      return exitCodes.ok;
    }
    let approval = null;
    if (shown.approval === null || given(invocation, 'yes')) {
      const reviewer = await decide(
        invocation,
        given(invocation, 'always') ? 'Do this, now and whenever it is needed again?' : 'Do this?',
      );
      if (reviewer === undefined) {
        await link.call('image/decline', { plan: shown.plan, reviewer: { name: userInfo().username, channel: 'tty' } });
        out.line('Nothing was done.');
        out.value({ plan: shown, record: null });
        return exitCodes.failed;
      }
      approval = { reviewer, standing: given(invocation, 'always') };
    }
    const done = await link.call(
      'image/prepare',
      { ...which, plan: shown.plan, approval },
      {
        signal: invocation.interrupted,
        onProgress: ({ code, detail, percent }) =>
          out.status(`${code}${detail === '' ? '' : ` ${detail}`}${percent === null ? '' : ` · ${percent} %`}`),
      },
    );
    out.status('');
    if (done.record !== null) printRecord(out, done.record);
    out.value(done);
    return exitCodes.ok;
  },
};

const decline: Command = {
  path: ['image', 'revoke'],
  summary: 'Take back a standing yes.',
  args: 'PLAN',
  options: { reviewer: { type: 'string', value: 'NAME', help: 'Who takes it back. Recorded as asserted.' } },
  details: ['PLAN is the digest that image plan shows.'],
  exits: {},
  async run(invocation) {
    const { kernel, out, args } = invocation;
    const [typed = ''] = args;
    if (!/^[0-9a-f]{64}$/.test(typed)) throw new UsageError('PLAN is the digest of 64 digits that image plan shows');
    const named = text(invocation, 'reviewer');
    if (named === undefined && !out.interactive)
      throw new UsageError('--reviewer is missing: this is a decision, and needs a name');
    const reviewer = {
      name: named ?? userInfo().username,
      channel: out.interactive ? ('tty' as const) : ('script' as const),
    };
    await (await kernel.connect()).call('image/decline', { plan: typed, reviewer });
    out.line('Recorded: no to this plan. A standing yes to it, if there was one, counts no more.');
    out.value({ plan: typed });
    return exitCodes.ok;
  },
};

const ownerWords = { 'this-home': '', 'set-up': 'by set-up', 'another-home': 'by another state folder' } as const;

const keptWords: Readonly<Record<string, string>> = {
  current: 'it is the default image',
  session: 'an open session uses it',
  contract: 'a contract uses it',
  container: 'a container uses it',
  below: 'a kept image is built on it',
  'not-ours': 'it is not of this state folder',
  usable: 'it can still be used',
};

function imageLine(out: Output, image: ImageView): void {
  const own = image.ownBytes === null ? 'own bytes not told' : `${megabytes(image.ownBytes)} of its own`;
  out.line(
    `${image.kind.padEnd(12)} ${shortId(image.id)}  `,
    `${megabytes(image.sizeBytes)}, ${own}`,
    styled(
      'dim',
      [
        image.tags[0] ?? '',
        ownerWords[image.owner],
        image.kept === null ? '' : `kept: ${keptWords[image.kept] ?? image.kept}`,
      ]
        .filter((word) => word !== '')
        .map((word) => ` · ${word}`)
        .join(''),
    ),
  );
}

const list: Command = {
  path: ['image', 'list'],
  summary: "List Escrow's images in the container engine, with what they take.",
  args: '',
  options: {},
  details: [
    'Layers that images share are counted once in the sum. What the engine’s storage adds is not told by engines.',
  ],
  exits: {},
  async run({ kernel, out }) {
    const found = await (await kernel.connect()).call('image/list', {});
    for (const image of found.images) imageLine(out, image);
    out.line(`${found.images.length} images, ${megabytes(found.totalBytes)} with each layer counted once`);
    out.value(found);
    return exitCodes.ok;
  },
};

const prune: Command = {
  path: ['image', 'prune'],
  summary: 'Remove images that this state folder had made and that nothing needs any more.',
  args: '',
  options: {
    preview: { type: 'boolean', help: 'Show what would go; remove nothing.' },
    all: { type: 'boolean', help: 'Also images that could still be used.' },
    'set-up': { type: 'boolean', help: 'Also images that npm run setup made, apart from the base.' },
    yes: { type: 'boolean', help: 'Do not ask.' },
  },
  details: [
    'Never removed: what a container or an open session uses, the default image, bases, and what another state folder made.',
  ],
  exits: { 1: 'the answer was no, or something could not be removed' },
  async run(invocation) {
    const { kernel, out } = invocation;
    const link = await kernel.connect();
    const choice = { all: given(invocation, 'all'), setUp: given(invocation, 'set-up') };
    const shown = await link.call('image/prune', { ...choice, preview: true });
    for (const image of shown.removed) imageLine(out, image);
    out.line(`${shown.removed.length} images would go, ${megabytes(shown.freedBytes)} would be freed`);
    if (given(invocation, 'preview') || shown.removed.length === 0) {
      out.value(shown);
      return exitCodes.ok;
    }
    if (!given(invocation, 'yes')) {
      if (!out.interactive) throw new UsageError('nobody can be asked here: say --yes or --preview');
      if (!(await invocation.confirm('Remove them?'))) {
        out.value(shown);
        return exitCodes.failed;
      }
    }
    const done = await link.call('image/prune', { ...choice, preview: false });
    for (const { id, reason } of done.failed) out.line(styled('red', 'not removed'), ` ${shortId(id)}: ${reason}`);
    out.line(`${done.removed.length} images removed, ${megabytes(done.freedBytes)} freed`);
    out.value(done);
    return done.failed.length === 0 ? exitCodes.ok : exitCodes.failed;
  },
};

export const imageCommands: readonly Command[] = [plan, prepare, decline, list, prune];
