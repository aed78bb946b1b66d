import { EscrowError } from '../../protocol/errors.ts';
import { given, text, type Command } from '../command.ts';
import { exitCodes, UsageError } from '../exit-code.ts';
import { sessionLines, time } from '../format.ts';
import { pickSession } from '../pick.ts';

/** What a person does after looking at the facts; nothing else ends a wait for an observation. */
export const reconcile: Command = {
  path: ['session', 'reconcile'],
  summary: 'End the wait for an observation that cannot be made: the attempt settles as not confirmed.',
  args: 'SESSION',
  options: {
    why: { type: 'string', value: 'TEXT', help: 'What you saw, and why the attempt may be settled. Recorded.' },
    reviewer: { type: 'string', value: 'NAME', help: 'Who decides it. Recorded as asserted.' },
    yes: { type: 'boolean', help: 'Do not ask.' },
  },
  details: [
    'For an attempt whose stop could not be confirmed (cancellation_pending), for instance because the machine of the container engine is gone. Look first: escrow kernel status --probe, and the engine itself. The Kernel asks the engine once more and records what it says beside your words; the earlier state stays in the history, and the settlement says that it was not confirmed.',
  ],
  exits: { 0: 'it settled', 4: 'no attempt of the session waits for an observation' },
  async run(invocation) {
    const { out, kernel } = invocation;
    const why = text(invocation, 'why');
    const name = text(invocation, 'reviewer');
    if (why === undefined) throw new UsageError('--why is missing: say what you saw');
    if (name === undefined) throw new UsageError('--reviewer is missing: this is a decision, and needs a name');
    const link = await kernel.connect();
    const session = await pickSession(link, invocation.args[0] ?? '');
    const attempt = session.attempts.find((each) => each.pending !== null);
    if (attempt === undefined || attempt.pending === null) {
      throw new EscrowError(
        'WrongState',
        'no attempt of this session waits for an observation',
        `See it with: escrow session show ${session.id}`,
      );
    }
    const { pending, container } = attempt;
    out.line(`attempt     ${attempt.number} · ${attempt.id}`);
    out.line(`waits       since ${time(pending.since)} in ${pending.blockedIn} for ${pending.waitingFor}`);
    if (container !== null) {
      out.line(
        `container   ${container.name} · last seen ${container.observedAt === null ? 'never' : time(container.observedAt)}`,
      );
    }
    if (!given(invocation, 'yes')) {
      if (!out.interactive) throw new UsageError('--yes is missing: this settles an attempt that nobody saw end');
      if (!(await invocation.confirm('Settle it without the observation?'))) {
        out.line('Nothing was done.');
        return exitCodes.failed;
      }
    }
    const after = await link.call('session/reconcile', {
      session: session.id,
      attempt: attempt.id,
      since: pending.since,
      reviewer: { name, channel: out.interactive ? 'tty' : 'script' },
      why,
    });
    for (const line of sessionLines(after)) out.line(...line);
    out.value(after);
    return exitCodes.ok;
  },
};
