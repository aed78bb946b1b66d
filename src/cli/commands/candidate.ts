import { userInfo } from 'node:os';
import { EscrowError } from '../../protocol/errors.ts';
import type { CandidateView, SessionView } from '../../protocol/views.ts';
import { acceptQuestion } from '../accept-question.ts';
import { given, text, type Command, type Invocation } from '../command.ts';
import { exitCodes, UsageError } from '../exit-code.ts';
import { candidateLines, integrationLines, short, verificationLines } from '../format.ts';
import type { KernelLink } from '../kernel-access.ts';
import { styled, type Output, type Part, type Style } from '../output.ts';
import { pickCandidate, pickSession } from '../pick.ts';
import { readArtefact } from '../read-artefact.ts';
import { unifiedDiff, type DiffLine } from '../unified-diff.ts';
import { expandTabs } from '../visible.ts';

interface FileDiff {
  readonly path: string;
  readonly change: string;
  readonly lines: readonly DiffLine[];
}

async function diffOf(kernel: KernelLink, candidate: CandidateView): Promise<FileDiff[]> {
  const files: FileDiff[] = [];
  for (const file of candidate.files) {
    const before = file.before === null ? null : await readArtefact(kernel, file.before);
    const after = file.after === null ? null : await readArtefact(kernel, file.after);
    files.push({ path: file.path, change: file.change, lines: unifiedDiff(file, before, after) });
  }
  return files;
}

/** How each kind of line begins and looks. */
const diffStyles: Readonly<Record<DiffLine['kind'], readonly [marker: string, style: Style | null]>> = {
  header: ['', 'bold'],
  hunk: ['', 'cyan'],
  added: ['+', 'green'],
  removed: ['-', 'red'],
  remark: ['\\ ', 'dim'],
  'not-shown': ['\\ ', 'yellow'],
  same: [' ', null],
};

function diffPart(line: DiffLine): Part {
  const [marker, style] = diffStyles[line.kind];
  const content = marker + expandTabs(line.text);
  return style === null ? content : styled(style, content);
}

function printDiff(out: Output, files: readonly FileDiff[]): void {
  for (const file of files) for (const line of file.lines) out.line(diffPart(line));
}

/** The session and candidate that the arguments name. */
async function target(
  invocation: Invocation,
  kernel: KernelLink,
): Promise<{ readonly session: SessionView; readonly candidate: CandidateView }> {
  const session = await pickSession(kernel, invocation.args[0] ?? '');
  return { session, candidate: pickCandidate(session, invocation.args[1]) };
}

const diff: Command = {
  path: ['candidate', 'diff'],
  summary: 'Show a candidate as a unified diff of its exact bytes.',
  args: 'SESSION [CANDIDATE]',
  options: {},
  details: [
    'Without CANDIDATE: the newest. Characters that a terminal would obey or not show are printed by name.',
    'With --json, each file has the diff as plain text under "diff".',
  ],
  exits: {},
  async run(invocation) {
    const { out } = invocation;
    const kernel = await invocation.kernel.connect();
    const { session, candidate } = await target(invocation, kernel);
    const files = await diffOf(kernel, candidate);
    printDiff(out, files);
    out.note(`candidate ${candidate.digest} · ${candidate.verdict}`);
    out.value({
      session: session.id,
      candidate: candidate.digest,
      verdict: candidate.verdict,
      files: files.map((file) => ({
        path: file.path,
        change: file.change,
        diff: file.lines.map((line) => `${diffStyles[line.kind][0]}${line.text}\n`).join(''),
      })),
    });
    return exitCodes.ok;
  },
};

const verify: Command = {
  path: ['candidate', 'verify'],
  summary: 'Verify a candidate again in a fresh sandbox. Each run is its own record.',
  args: 'SESSION [CANDIDATE]',
  options: {},
  details: ['Ctrl-C cancels the run.'],
  exits: { 1: 'the candidate did not pass', 4: 'the candidate is not eligible for verification' },
  async run(invocation) {
    const { out } = invocation;
    const kernel = await invocation.kernel.connect();
    const { session, candidate } = await target(invocation, kernel);
    out.note(`verifying ${short(candidate.digest)} in a fresh sandbox …`);
    const run = await kernel.call(
      'candidate/verify',
      { session: session.id, candidate: candidate.digest },
      { signal: invocation.interrupted },
    );
    for (const line of verificationLines(run)) out.line(...line);
    out.value(run);
    return run.result === 'passed' ? exitCodes.ok : exitCodes.failed;
  },
};

const reviewerOption = {
  reviewer: { type: 'string', value: 'NAME', help: 'Who decides. Recorded as asserted. Needed where nobody is asked.' },
} as const;

/**
 * Who decides, and by which channel. On a terminal the person is asked and the channel is `tty`. Everything else is a
 * script: it must name the reviewer, and the candidate by at least twelve digits, because nobody looked at a screen.
 */
async function decide(
  invocation: Invocation,
  candidate: CandidateView,
  question: string,
): Promise<{ readonly name: string; readonly channel: 'tty' | 'script' } | undefined> {
  const named = text(invocation, 'reviewer');
  if (invocation.out.interactive && !given(invocation, 'yes')) {
    for (const line of candidateLines(candidate)) invocation.out.line(...line);
    if (!(await invocation.confirm(question))) return undefined;
    return { name: named ?? userInfo().username, channel: 'tty' };
  }
  if (named === undefined)
    throw new UsageError('--reviewer is missing: where nobody is asked, the decision needs a name');
  if ((invocation.args[1]?.length ?? 0) < 12) {
    throw new UsageError(
      'name the candidate by at least twelve digits: where nobody is asked, the decision names the bytes',
    );
  }
  return { name: named, channel: 'script' };
}

const accept: Command = {
  path: ['candidate', 'accept'],
  summary: 'Accept a candidate that passed its verification, and integrate it into the working tree.',
  args: 'SESSION [CANDIDATE]',
  options: {
    ...reviewerOption,
    yes: { type: 'boolean', help: 'Do not ask. The decision is recorded as that of a script.' },
    comment: { type: 'string', value: 'TEXT', help: 'Kept with the decision.' },
    'no-integrate': {
      type: 'boolean',
      help: 'Record the decision only; integrate later with: escrow candidate integrate.',
    },
  },
  details: [
    'The decision is bound to the candidate digest: other bytes cannot be integrated under it.',
    'Integration writes only where the working tree still has the bytes of the snapshot; HEAD, the index and branches are never touched.',
  ],
  exits: {
    1: 'not accepted (the answer was no), or accepted but not integrated',
    4: 'not verified, already decided, or the working tree has changed (BaseChanged: nothing was written)',
  },
  async run(invocation) {
    const { out } = invocation;
    const kernel = await invocation.kernel.connect();
    const { session, candidate } = await target(invocation, kernel);
    const passed = candidate.verifications.findLast((run) => run.result === 'passed');
    if (passed === undefined) {
      throw new EscrowError(
        'NotVerified',
        `candidate ${short(candidate.digest)} has not passed a verification (${candidate.verdict})`,
        `Verify it with: escrow candidate verify ${session.id} ${short(candidate.digest)}`,
        { candidate: candidate.digest, verdict: candidate.verdict },
      );
    }
    const shown = out.interactive && !given(invocation, 'yes') ? await diffOf(kernel, candidate) : [];
    printDiff(out, shown);
    const notShown = shown.filter(({ lines }) => lines.some(({ kind }) => kind === 'not-shown'));
    const reviewer = await decide(
      invocation,
      candidate,
      acceptQuestion(
        short(candidate.digest),
        session.root,
        notShown.map(({ path }) => path),
      ),
    );
    if (reviewer === undefined) {
      out.line('Not accepted; nothing was recorded.');
      return exitCodes.failed;
    }
    const { session: after, integration } = await kernel.call('candidate/accept', {
      session: session.id,
      candidate: candidate.digest,
      verification: passed.runId,
      reviewer,
      comment: text(invocation, 'comment') ?? '',
      integrate: !given(invocation, 'no-integrate'),
    });
    out.line(`accepted ${short(candidate.digest)}`);
    if (integration !== null) for (const line of integrationLines(integration)) out.line(...line);
    out.value({ session: after, integration });
    return integration === null || integration.state === 'integrated' ? exitCodes.ok : exitCodes.failed;
  },
};

const reject: Command = {
  path: ['candidate', 'reject'],
  summary: 'Reject a candidate with a reason.',
  args: 'SESSION [CANDIDATE]',
  options: {
    ...reviewerOption,
    yes: { type: 'boolean', help: 'Do not ask. The decision is recorded as that of a script.' },
    comment: { type: 'string', value: 'TEXT', help: 'The reason. A correction attempt is given it. Required.' },
    correct: { type: 'boolean', help: 'Reserve a correction attempt, if the budget has one left.' },
  },
  details: [],
  exits: { 1: 'not rejected: the answer was no', 4: 'already decided, or the budget is spent' },
  async run(invocation) {
    const { out } = invocation;
    const comment = text(invocation, 'comment');
    if (comment === undefined || comment.trim() === '')
      throw new UsageError('--comment is missing: a rejection has a reason');
    const kernel = await invocation.kernel.connect();
    const { session, candidate } = await target(invocation, kernel);
    const reviewer = await decide(invocation, candidate, `Reject candidate ${short(candidate.digest)}?`);
    if (reviewer === undefined) {
      out.line('Not rejected; nothing was recorded.');
      return exitCodes.failed;
    }
    const after = await kernel.call('candidate/reject', {
      session: session.id,
      candidate: candidate.digest,
      reviewer,
      comment,
      correct: given(invocation, 'correct'),
    });
    out.line(`rejected ${short(candidate.digest)}`);
    if (given(invocation, 'correct'))
      out.line(styled('dim', '→ '), `watch the correction with: escrow session show ${session.id} --watch`);
    out.value(after);
    return exitCodes.ok;
  },
};

const integrate: Command = {
  path: ['candidate', 'integrate'],
  summary: 'Integrate an accepted candidate into the working tree.',
  args: 'SESSION [CANDIDATE]',
  options: {},
  details: [],
  exits: { 4: 'not accepted, or the working tree has changed (BaseChanged: nothing was written)' },
  async run(invocation) {
    const { out } = invocation;
    const kernel = await invocation.kernel.connect();
    const { session, candidate } = await target(invocation, kernel);
    const result = await kernel.call('candidate/integrate', { session: session.id, candidate: candidate.digest });
    for (const line of integrationLines(result.integration)) out.line(...line);
    out.value(result);
    return result.integration.state === 'integrated' ? exitCodes.ok : exitCodes.failed;
  },
};

const undo: Command = {
  path: ['candidate', 'undo'],
  summary: 'Undo an integration: put the former bytes back, if the files are still as integrated.',
  args: 'SESSION [CANDIDATE]',
  options: {},
  details: ['The decision stays recorded.'],
  exits: { 2: 'nothing of this candidate is integrated', 4: 'a file has changed since; nothing was written' },
  async run(invocation) {
    const { out } = invocation;
    const kernel = await invocation.kernel.connect();
    const { session, candidate } = await target(invocation, kernel);
    // An undo that was refused left the files as they were: integrated.
    const integrated = candidate.integrations.findLast(
      ({ state }) => state === 'integrated' || state === 'undo_refused',
    );
    if (integrated === undefined) {
      throw new UsageError(
        'nothing of this candidate is integrated',
        `There is nothing to undo. See what became of it: escrow session show ${session.id}`,
      );
    }
    const result = await kernel.call('integration/undo', { session: session.id, integration: integrated.id });
    for (const line of integrationLines(result.integration)) out.line(...line);
    out.value(result);
    return result.integration.state === 'undone' ? exitCodes.ok : exitCodes.failed;
  },
};

export const candidateCommands: readonly Command[] = [diff, verify, accept, reject, integrate, undo];
