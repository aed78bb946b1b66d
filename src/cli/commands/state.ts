import path from 'node:path';
import { EscrowError } from '../../protocol/errors.ts';
import { count, given, text, type Command } from '../command.ts';
import { exitCodes, UsageError } from '../exit-code.ts';
import { bytesText, time } from '../format.ts';

/** At most so many lines of a list that a person did not ask for. */
const shown = 20;

const verify: Command = {
  path: ['kernel', 'verify'],
  summary: 'Recompute every hash chain of the evidence log and re-hash every artefact.',
  args: '',
  options: {},
  details: [
    'Shows damage and careless edits. It is no proof against somebody who can rewrite the whole state folder: there is no key that they do not have.',
  ],
  exits: { 0: 'everything is as it was written', 1: 'something is not' },
  async run({ kernel, out }) {
    const link = await kernel.connect();
    const found = await link.call('kernel/verify', {});
    const whole = found.broken.length === 0 && found.damaged.length === 0;
    out.line(`log         ${found.events} events`);
    for (const { stream, version, reason } of found.broken) {
      out.line(`broken      ${stream === '' ? 'the log' : stream} at ${version}: ${reason}`);
    }
    out.line(`artefacts   ${found.artefacts} read and hashed`);
    for (const { sha256, reason } of found.damaged) out.line(`damaged     ${sha256}: ${reason}`);
    out.line(whole ? 'Everything is as it was written.' : 'Restore a backup with: escrow kernel restore FOLDER');
    out.value({ whole, ...found });
    return whole ? exitCodes.ok : exitCodes.failed;
  },
};

const backup: Command = {
  path: ['kernel', 'backup'],
  summary: 'Copy the evidence log and all artefacts of this moment into a new folder.',
  args: '[FOLDER]',
  options: {},
  details: ['Without FOLDER it only says what would be copied. Sessions go on meanwhile.'],
  exits: {},
  async run({ kernel, out, args }) {
    const link = await kernel.connect();
    const [folder] = args;
    const made = await link.call('kernel/backup', folder === undefined ? {} : { folder: path.resolve(folder) });
    out.line(`log         ${made.events} events, ${bytesText(made.databaseBytes)}`);
    out.line(`artefacts   ${made.artefacts} files, ${bytesText(made.artefactBytes)}`);
    out.line(
      made.folder === null
        ? 'Nothing was written. Make it with: escrow kernel backup FOLDER'
        : `Written to ${made.folder}. Bring it back with: escrow kernel restore ${made.folder}`,
    );
    out.value(made);
    return exitCodes.ok;
  },
};

const restore: Command = {
  path: ['kernel', 'restore'],
  summary: 'Put a backup in the place of the state folder’s log and artefacts.',
  args: 'FOLDER',
  options: { yes: { type: 'boolean', help: 'Do not ask.' } },
  details: [
    'No Kernel may run. The backup is checked whole first: every hash chain, every artefact. What was there before is moved to a folder replaced-… of the state folder, not deleted. Of containers of sessions that the backup does not know, what was written in them is read out and kept; then they are stopped and removed. See them with: escrow salvage.',
  ],
  exits: { 3: 'a Kernel runs: stop it first', 5: 'the backup is damaged, or the disk full' },
  async run(invocation) {
    const { kernel, out } = invocation;
    const folder = path.resolve(invocation.args[0] ?? '');
    if (!given(invocation, 'yes')) {
      if (!out.interactive) throw new UsageError('--yes is missing: this replaces the state');
      if (!(await invocation.confirm(`Replace the state in ${kernel.home} by the backup in ${folder}?`))) {
        out.line('Nothing was done.');
        return exitCodes.failed;
      }
    }
    const restored = await kernel.restore(folder).catch((error: unknown) => {
      if (!EscrowError.is(error, 'AnotherKernel')) throw error;
      throw new EscrowError(error.code, error.message, 'Stop it first: escrow kernel stop --settle', error.details);
    });
    out.line(`log         ${restored.events} events`);
    out.line(`artefacts   ${restored.artefacts} files, ${bytesText(restored.artefactBytes)}`);
    out.line(`What was there before is in ${restored.former}.`);
    out.value(restored);
    return exitCodes.ok;
  },
};

const dayMs = 86_400_000;

const prune: Command = {
  path: ['kernel', 'prune'],
  summary: 'Let go of the bytes of old sessions that nobody accepted. Events stay.',
  args: '',
  options: {
    'older-than': { type: 'string', value: 'DAYS', help: 'Sessions without any event for so many days.' },
    apply: { type: 'boolean', help: 'Do it. Without it nothing changes: what would go is listed.' },
    reviewer: { type: 'string', value: 'NAME', help: 'Who decides it; recorded as asserted. Needed with --apply.' },
  },
  details: [
    'Only artefacts go (files, transcripts, audit logs), and only those that no other session has. Nothing of a session that is open, has an accepted candidate or one that waits for a decision. Every event stays, and one more records what went, when and by whom.',
  ],
  exits: {},
  async run(invocation) {
    const { kernel, out } = invocation;
    const days = count(invocation, 'older-than');
    if (days === undefined) throw new UsageError('--older-than is missing');
    const name = text(invocation, 'reviewer');
    const apply = given(invocation, 'apply');
    if (apply && name === undefined)
      throw new UsageError('--reviewer is missing: this is a decision, and needs a name');
    const link = await kernel.connect();
    const result = await link.call('kernel/retention', {
      before: Date.now() - days * dayMs,
      ...(apply && name !== undefined
        ? { reviewer: { name, channel: out.interactive ? ('tty' as const) : ('script' as const) } }
        : {}),
    });
    for (const session of result.sessions.slice(0, shown)) {
      out.line(
        `${result.applied ? 'gone' : 'goes'}        ${session.id} · ${session.title} · ${time(session.updatedAt)}`,
      );
    }
    if (result.sessions.length > shown) out.line(`            and ${result.sessions.length - shown} more`);
    const { open, accepted, undecided, recent } = result.kept;
    out.line(`stays       ${open} open, ${accepted} accepted, ${undecided} undecided, ${recent} newer`);
    out.line(`${result.applied ? 'freed' : 'would free'}  ${result.artefacts} artefacts, ${bytesText(result.bytes)}`);
    if (!result.applied && result.sessions.length > 0)
      out.line('Nothing was changed. Do it with: --apply --reviewer NAME');
    out.value(result);
    return exitCodes.ok;
  },
};

export const stateCommands: readonly Command[] = [verify, backup, restore, prune];
