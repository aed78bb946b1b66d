import { unreachable } from '../../protocol/primitives.ts';
import { EscrowError } from '../../protocol/errors.ts';
import { sha256 } from '../../protocol/hash.ts';
import type { SalvagedContainer, SalvagedFile } from '../../protocol/salvage.ts';
import { count, text, type Command } from '../command.ts';
import { exitCodes, UsageError } from '../exit-code.ts';
import { bytesText, short, time, type Lines } from '../format.ts';
import { FreshFolder, type NameFault } from '../fresh-folder.ts';
import type { KernelLink } from '../kernel-access.ts';
import { styled, type Part } from '../output.ts';
import { pickSalvaged } from '../pick.ts';
import { readArtefact } from '../read-artefact.ts';
import { visibleJson } from '../visible.ts';

/** Whether it is all that was written in the container, and why not. */
function wholeness({ fault, lost }: SalvagedContainer): readonly Part[] {
  switch (fault) {
    case null:
      return [styled('green', 'complete')];
    case 'no room':
      return [
        styled('yellow', 'not all'),
        `: the store had no room for the rest${lost === 0 ? '' : ` (${lost} files)`}`,
      ];
    case 'no audit':
      return [styled('yellow', 'nothing known'), ': there was no log that tells what was written in it'];
    case 'audit-damaged':
      return [styled('yellow', 'maybe not all'), ': the log of what was written in it is damaged'];
    default:
      return [styled('yellow', 'maybe not all'), `: ${fault}`];
  }
}

/** One container: when and which, whether it is all, and the first of its files. */
function containerLines(container: SalvagedContainer): Lines {
  const { engineId, at, name, purpose, session, files, bytes, paths, auditLog, tries } = container;
  const more = files - paths.length;
  return [
    [
      styled('bold', short(engineId)),
      ` · ${time(at)} · ${name}`,
      purpose === null ? '' : styled('dim', ` · ${purpose}`),
    ],
    ['  ', ...wholeness(container), tries > 1 ? styled('dim', ` · after ${tries} tries`) : ''],
    ...(session === null ? [] : [[`  session ${session}, as its label said; no record knows it`]]),
    [
      `  ${files} files, ${bytesText(bytes)}`,
      auditLog === null ? ' · no log' : ` · log of what was done in it, ${bytesText(auditLog.size)}`,
    ],
    ...paths.map((path): readonly Part[] => [`    ${path}`]),
    ...(more > 0 ? [[styled('dim', `    and ${more} more; all with: escrow salvage show ${short(engineId)}`)]] : []),
  ];
}

const writeOut = (id: string): string => `write the bytes out with: escrow salvage write ${id} --into FOLDER`;

const list: Command = {
  path: ['salvage'],
  summary: 'List what was read out of containers that no record knew, newest first.',
  args: '',
  options: { limit: { type: 'string', value: 'N', help: 'At most so many, up to 500. Default: 20.' } },
  details: [
    'A container that carries the labels of this state folder and that nothing is recorded of (after a backup was brought back, say) is read out, stopped and removed. What was written in it is kept; it is no candidate, and nothing verifies or integrates it.',
    'All of one: escrow salvage show ID. Its bytes: escrow salvage write ID --into FOLDER.',
  ],
  exits: {},
  async run(invocation) {
    const { out, kernel } = invocation;
    const limit = count(invocation, 'limit') ?? 20;
    if (limit > 500) throw new UsageError('--limit is at most 500');
    const found = await (await kernel.connect()).call('salvage/list', { limit });
    for (const line of found.containers.flatMap(containerLines)) out.line(...line);
    if (found.containers.length === 0) out.line('Nothing was read out of containers that no record knew.');
    else out.line(styled('dim', '→ '), writeOut('ID'));
    if (found.more) out.line(styled('dim', '… there are older ones; --limit shows more'));
    out.value(found);
    return exitCodes.ok;
  },
};

/** All files of one, whatever their number. */
async function filesOf(link: KernelLink, engineId: string): Promise<readonly SalvagedFile[]> {
  const files: SalvagedFile[] = [];
  for (;;) {
    const page = await link.call('salvage/get', { engineId, after: files.length });
    files.push(...page.files);
    if (!page.more) return files;
  }
}

const octal = (mode: number): string => mode.toString(8).padStart(4, '0');

const show: Command = {
  path: ['salvage', 'show'],
  summary: 'Show everything that was read out of one container: files with mode, size and hash.',
  args: 'ID',
  options: {},
  details: ['ID is the container’s id, a unique beginning of it, its name, or "last".'],
  exits: { 2: 'there is none with this id' },
  async run(invocation) {
    const { out, kernel, args } = invocation;
    const link = await kernel.connect();
    const container = await pickSalvaged(link, args[0] ?? '');
    const files = await filesOf(link, container.engineId);
    // Without the line that says where to find the files that it leaves out.
    const about = containerLines({ ...container, paths: [] });
    for (const line of container.files > 0 ? about.slice(0, -1) : about) out.line(...line);
    for (const { path, mode, artefact } of files) {
      if (artefact === null || mode === null) out.line('  ', styled('yellow', 'no room'), `  ${path}`);
      else out.line(`  ${octal(mode)}  ${short(artefact.sha256)}  ${bytesText(artefact.size).padStart(10)}  ${path}`);
    }
    out.line(styled('dim', '→ '), writeOut(short(container.engineId)));
    out.value({ container, files });
    return exitCodes.ok;
  },
};

/** Why a file of a salvaged container is not in the folder. */
type NotWritten = NameFault | 'no-room' | 'not-kept' | 'damaged';

function notWrittenText(reason: NotWritten): string {
  switch (reason) {
    case 'no-room':
      return 'the store had no room for it when it was read out';
    case 'not-kept':
      return 'the store does not have its bytes any more';
    case 'damaged':
      return 'its bytes are not those that were stored; see: escrow kernel verify';
    case 'name-taken':
      return 'its name is that of another file or folder here, or becomes it where letter case does not count';
    case 'name-not-taken-here':
      return 'this file system does not take its name';
    case 'empty':
    case 'too-long':
    case 'malformed':
    case 'control-character':
    case 'invisible-character':
    case 'backslash':
    case 'absolute':
    case 'not-nfc':
    case 'empty-segment':
    case 'dot-segment':
    case 'segment-too-long':
    case 'trailing-dot-or-space':
    case 'device-name':
    case 'git-folder':
      return `its name breaks a rule of paths (${reason.replaceAll('-', ' ')})`;
    default:
      return unreachable(reason, 'reason');
  }
}

/** The bytes of a file as they were stored, or why there are none. */
async function bytesOf(
  link: KernelLink,
  { artefact }: Pick<SalvagedFile, 'artefact'>,
): Promise<Uint8Array | NotWritten> {
  if (artefact === null) return 'no-room';
  try {
    const bytes = await readArtefact(link, artefact);
    return sha256(bytes) === artefact.sha256 ? bytes : 'damaged';
  } catch (error) {
    if (EscrowError.is(error, 'NotFound')) return 'not-kept';
    if (EscrowError.is(error, 'ArtefactDamaged')) return 'damaged';
    throw error;
  }
}

const write: Command = {
  path: ['salvage', 'write'],
  summary: 'Write what was read out of one container into a new or empty folder.',
  args: 'ID',
  options: { into: { type: 'string', value: 'FOLDER', help: 'A folder that is empty or not there yet. Required.' } },
  details: [
    'Into FOLDER come files/ with the files under their paths, audit-log.ndjson, the log of what was done in the container, and salvage.json, written last: what the container was, and of each file its hash, its mode and whether it was written. The bytes are a model’s and were never checked: read them before you use them. They are written readable by you alone and without the right to be executed; no link is followed, nothing is written over.',
    'ID is the container’s id, a unique beginning of it, its name, or "last".',
  ],
  exits: {
    1: 'something that the container held is not in the folder; the output names it',
    2: 'there is none with this id, or the folder that FOLDER is to be in is not there',
    4: 'FOLDER is not empty, no folder, a link, or can’t be written',
  },
  async run(invocation) {
    const { out, kernel, args, interrupted } = invocation;
    const into = text(invocation, 'into');
    if (into === undefined) throw new UsageError('--into is missing: name a folder that is new or empty');
    const link = await kernel.connect();
    const container = await pickSalvaged(link, args[0] ?? '');
    const files = await filesOf(link, container.engineId);
    const folder = await FreshFolder.open(into);
    const put = async (
      stored: Pick<SalvagedFile, 'artefact'>,
      name: string,
      under?: string,
    ): Promise<NotWritten | null> => {
      if (interrupted.aborted) {
        throw new EscrowError('Cancelled', `cancelled; ${folder.root} has a part`, 'Remove it, and begin again.');
      }
      const bytes = await bytesOf(link, stored);
      return typeof bytes === 'string' ? bytes : folder.write(name, bytes, under);
    };
    const done: (SalvagedFile & { readonly notWritten: NotWritten | null })[] = [];
    for (const [i, file] of files.entries()) {
      out.status(`${i + 1} of ${files.length} files`);
      done.push({ ...file, notWritten: await put(file, file.path, 'files') });
    }
    out.status('');
    const { auditLog } = container;
    const logNotWritten = auditLog === null ? null : await put({ artefact: auditLog }, 'audit-log.ndjson');
    const missing = done.filter(({ notWritten }) => notWritten !== null);
    const summary = { container, files: done, auditLogNotWritten: logNotWritten };
    await folder.write('salvage.json', Buffer.from(`${visibleJson(summary)}\n`));

    const written = done.filter(({ notWritten }) => notWritten === null);
    const bytes = written.reduce((sum, { artefact }) => sum + (artefact?.size ?? 0), 0);
    out.line(`written     ${written.length} of ${done.length} files, ${bytesText(bytes)}, into ${folder.root}`);
    if (auditLog === null) out.line('log         none was kept');
    for (const { path, notWritten } of missing) {
      if (notWritten !== null) out.line(styled('yellow', 'not written'), ` ${path}: ${notWrittenText(notWritten)}`);
    }
    if (logNotWritten !== null) {
      out.line(styled('yellow', 'not written'), ` audit-log.ndjson: ${notWrittenText(logNotWritten)}`);
    }
    out.line('read out    ', ...wholeness(container));
    out.value({ folder: folder.root, ...summary });
    return missing.length === 0 && logNotWritten === null ? exitCodes.ok : exitCodes.failed;
  },
};

export const salvageCommands: readonly Command[] = [list, show, write];
