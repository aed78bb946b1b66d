import { existsSync } from 'node:fs';
import path from 'node:path';
import { EscrowError } from '../../protocol/errors.ts';
import type { FencingToken } from '../../protocol/primitives.ts';
import { EngineKind, LoopSwitches, type InferenceOptions } from '../../protocol/binding.ts';
import type { SessionView } from '../../protocol/views.ts';
import { count, given, text, type Command, type Invocation } from '../command.ts';
import { exitCodes, UsageError, type ExitCode } from '../exit-code.ts';
import { activityLines, bindingLine, sessionLines, time } from '../format.ts';
import type { KernelLink } from '../kernel-access.ts';
import { styled, table } from '../output.ts';
import { allSessions, pickSession } from '../pick.ts';
import { liveLine, news, nothingTold, watch } from '../watch.ts';
import { resolveContract, runBaseline } from './contract.ts';

/** 0 when the newest candidate passed its verification; 130 after Ctrl-C; else 1. */
function exitOf(session: SessionView, interrupted: boolean): ExitCode {
  if (interrupted) return exitCodes.interrupted;
  return session.candidates.at(-1)?.verdict === 'passed' ? exitCodes.ok : exitCodes.failed;
}

/** Prints what happens until the session is at rest. With `--json` each news is a line `{"event": …}`. */
async function follow(
  invocation: Invocation,
  kernel: KernelLink,
  session: SessionView,
  token: FencingToken | null,
): Promise<SessionView> {
  const { out } = invocation;
  let told = nothingTold;
  let seq = -1;
  const last = await watch(kernel, session.id, {
    token,
    interrupted: invocation.interrupted,
    onLive(live) {
      out.status(live === null ? '' : liveLine(live));
      out.value({ live });
    },
    onView(view) {
      const next = news(told, view);
      told = next.told;
      for (const line of next.lines) out.line(...line);
      if (view.seq !== seq) {
        seq = view.seq;
        const attempt = view.attempts.at(-1);
        out.value({
          event: {
            seq,
            state: view.state,
            phase: attempt?.phase ?? null,
            outcome: attempt?.outcome?.kind ?? null,
            verdict: view.candidates.at(-1)?.verdict ?? null,
          },
        });
      }
    },
  });
  return last;
}

function whatNext(session: SessionView): string {
  const candidate = session.candidates.at(-1);
  const id = session.id;
  if (candidate === undefined) return `see it with: escrow session show ${id}`;
  if (candidate.verdict === 'passed') {
    return `read it with: escrow candidate diff ${id}; then escrow candidate accept ${id} or escrow candidate reject ${id}`;
  }
  return `read it with: escrow candidate diff ${id}; reject it with: escrow candidate reject ${id} --comment TEXT`;
}

const extendOptions = {
  extend: {
    type: 'string',
    value: 'N',
    help: "Allow N attempts beyond the contract's budget. A recorded decision; needs --reviewer.",
  },
  reviewer: { type: 'string', value: 'NAME', help: 'Who allows them. Recorded as asserted.' },
} as const;

/** The decision to allow more attempts, if it was asked for. Throws UsageError without a name. */
function extension(
  invocation: Invocation,
):
  | { readonly attempts: number; readonly reviewer: { readonly name: string; readonly channel: 'tty' | 'script' } }
  | undefined {
  const attempts = count(invocation, 'extend');
  if (attempts === undefined) return undefined;
  const name = text(invocation, 'reviewer');
  if (name === undefined)
    throw new UsageError('--reviewer is missing: to allow more attempts is a decision, and needs a name');
  return { attempts, reviewer: { name, channel: invocation.out.interactive ? 'tty' : 'script' } };
}

const switchNames = Object.keys(LoopSwitches.shape) as (keyof LoopSwitches)[];

/** `a=off,b=on` as switches. Throws UsageError. */
function switchesOf(invocation: Invocation): Partial<LoopSwitches> | undefined {
  const list = text(invocation, 'switch');
  if (list === undefined) return undefined;
  const given: Partial<LoopSwitches> = {};
  for (const part of list.split(',')) {
    const [name, value] = part.trim().split('=');
    const known = switchNames.find((each) => each === name);
    if (known === undefined || (value !== 'on' && value !== 'off'))
      throw new UsageError(`--switch takes NAME=on or NAME=off, not "${part}"; names: ${switchNames.join(', ')}`);
    given[known] = value === 'on';
  }
  return given;
}

/** Throws UsageError. */
function thinking(invocation: Invocation): InferenceOptions['think'] | undefined {
  const how = text(invocation, 'think');
  switch (how) {
    case undefined:
      return undefined;
    case 'off':
      return false;
    case 'on':
      return true;
    case 'low':
    case 'medium':
    case 'high':
      return how;
    default:
      throw new UsageError(`--think is off, on, low, medium or high, not "${how}"`);
  }
}

/** A script by its name, also as `models` prints it, or by its file: that is meant relative to where the command was given. */
function rehearsalScript(named: string): string {
  const [, listed] = /^rehearsal\/([^\\/]+)$/.exec(named) ?? [];
  if (listed !== undefined && !existsSync(named)) return listed;
  return /[\\/]/.test(named) ? path.resolve(named) : named;
}

const start: Command = {
  path: ['session', 'start'],
  summary: 'Let a model attempt a contract, and watch.',
  args: 'FILE|DIGEST',
  options: {
    model: {
      type: 'string',
      value: 'NAME',
      help: "Ollama: a tag. Chat completions: the server's id. Rehearsal: a script's name or file. See: escrow models.",
    },
    engine: {
      type: 'string',
      value: 'NAME',
      help: 'ollama (default), chat-completions (an approved server on this machine), or rehearsal, where a script speaks instead of a model.',
    },
    'num-ctx': { type: 'string', value: 'N', help: 'Context window in tokens; part of the binding.' },
    seed: { type: 'string', value: 'N', help: "The sampler's seed; part of the binding." },
    think: {
      type: 'string',
      value: 'HOW',
      help: 'off (default), on, low, medium or high; part of the binding. Thinking counts as output.',
    },
    draft: { type: 'string', value: 'N', help: 'Speculative draft tokens a step (Ollama); part of the binding.' },
    switch: {
      type: 'string',
      value: 'LIST',
      help: `Help for small models to turn on or off, e.g. finishGate=off,wholeFile=off. There are: ${switchNames.join(', ')}. Part of the binding.`,
    },
    ...extendOptions,
    baseline: { type: 'boolean', help: 'Run the baseline first if the contract has none yet.' },
    watch: { type: 'boolean', help: 'Stay and print what happens until the session is at rest (the default).' },
    detach: { type: 'boolean', help: 'Return at once. Nobody controls the session; its contract alone bounds it.' },
  },
  details: [
    'A session that is watched is controlled by this process: Ctrl-C cancels it and waits until its end has been observed; a second Ctrl-C leaves at once, and the Kernel settles it alone.',
    'With --json and without --detach, lines {"event": …} come first; the last line is the session.',
  ],
  exits: {
    0: 'a candidate came out and passed its verification; with --detach: it was started',
    1: 'anything else came out',
  },
  async run(invocation) {
    const { out, args, kernel } = invocation;
    const engine = text(invocation, 'engine') ?? 'ollama';
    const known = EngineKind.safeParse(engine);
    if (!known.success) throw new UsageError('--engine is ollama, chat-completions or rehearsal');
    const named = text(invocation, 'model');
    if (named === undefined) {
      throw new UsageError('--model is missing', 'List what can be named with: escrow models');
    }
    const detach = given(invocation, 'detach');
    if (detach && given(invocation, 'watch')) throw new UsageError('--watch and --detach exclude each other');
    const model = engine === 'rehearsal' ? rehearsalScript(named) : named;
    const numCtx = count(invocation, 'num-ctx');
    const seed = count(invocation, 'seed');
    const draftNumPredict = count(invocation, 'draft');
    const think = thinking(invocation);
    const switches = switchesOf(invocation);

    const link = await kernel.connect();
    let contract = await resolveContract(link, args[0] ?? '');
    if (contract.baseline === null && given(invocation, 'baseline')) {
      contract = await runBaseline(invocation, link, contract.digest);
    }
    const extend = extension(invocation);
    const { session, token } = await link.call('session/start', {
      digest: contract.digest,
      root: contract.root,
      engine: known.data,
      model,
      control: !detach,
      ...(extend === undefined ? {} : { extend }),
      options: {
        ...(numCtx === undefined ? {} : { numCtx }),
        ...(seed === undefined ? {} : { seed }),
        ...(draftNumPredict === undefined ? {} : { draftNumPredict }),
        ...(think === undefined ? {} : { think }),
      },
      ...(switches === undefined ? {} : { switches }),
    });
    out.line(styled('bold', session.title), styled('dim', ` · ${session.id}`));
    out.line(...bindingLine(session.binding));
    if (detach) {
      out.line(`Started; nobody controls it. See it with: escrow session show ${session.id}`);
      out.value(session);
      return exitCodes.ok;
    }
    const last = await follow(invocation, link, session, token);
    const interrupted = invocation.interrupted.aborted;
    const code = exitOf(last, interrupted);
    if (!interrupted) out.line(styled('dim', '→ '), whatNext(last));
    out.value(last);
    return code;
  },
};

const list: Command = {
  path: ['session', 'list'],
  summary: 'List sessions, newest first.',
  args: '',
  options: {
    root: { type: 'string', value: 'FOLDER', help: 'Only those of this repository.' },
    limit: { type: 'string', value: 'N', help: 'At most so many. Default: 20.' },
  },
  details: [],
  exits: {},
  async run(invocation) {
    const { out } = invocation;
    const link = await invocation.kernel.connect();
    const root = text(invocation, 'root');
    const all = await allSessions(link, root === undefined ? undefined : path.resolve(root));
    const shown = all.slice(0, count(invocation, 'limit') ?? 20);
    const rows = shown.map((session) => [
      session.id,
      time(session.createdAt),
      session.state,
      session.outcome ?? session.phase ?? '-',
      session.decision ?? session.verdict ?? '-',
      `${session.model}${session.synthetic ? ' (synthetic)' : ''}`,
      session.title,
    ]);
    if (rows.length === 0) out.line('No sessions. Start one with: escrow session start FILE --model NAME');
    else
      for (const line of table([['SESSION', 'STARTED', 'STATE', 'OUTCOME', 'REVIEW', 'MODEL', 'TITLE'], ...rows]))
        out.line(line);
    if (all.length > shown.length) out.line(styled('dim', `… ${all.length - shown.length} older; --limit shows more`));
    out.value({ sessions: shown, more: all.length > shown.length });
    return exitCodes.ok;
  },
};

const show: Command = {
  path: ['session', 'show'],
  summary: 'Show a session: attempts, candidates, verification, settlement.',
  args: 'SESSION',
  options: {
    activity: { type: 'boolean', help: 'Show what the model and its tools did, too.' },
    watch: { type: 'boolean', help: 'Go on printing until the session is at rest; observes, does not control.' },
  },
  details: [],
  exits: {},
  async run(invocation) {
    const { out } = invocation;
    const link = await invocation.kernel.connect();
    let session = await pickSession(link, invocation.args[0] ?? '');
    if (given(invocation, 'watch')) session = await follow(invocation, link, session, null);
    else {
      for (const line of sessionLines(session)) out.line(...line);
      if (given(invocation, 'activity')) {
        for (const attempt of session.attempts) {
          out.line(styled('bold', `activity of attempt ${attempt.number}`));
          for (const line of attempt.activity.flatMap(activityLines)) out.line(...line);
        }
      }
    }
    out.value(session);
    return invocation.interrupted.aborted ? exitCodes.interrupted : exitCodes.ok;
  },
};

/** Control of a session from this process. Throws EscrowError NotController, with the way to take it. */
async function control(invocation: Invocation, link: KernelLink, session: SessionView): Promise<FencingToken> {
  const { token } = await link.call('session/attach', {
    session: session.id,
    mode: 'control',
    takeOver: given(invocation, 'take-over'),
  });
  if (token === null) {
    throw new EscrowError(
      'NotController',
      `${session.controller?.name ?? 'another client'} controls this session`,
      'Take control with --take-over; the other client is told.',
    );
  }
  return token;
}

const takeOver = {
  'take-over': { type: 'boolean', help: 'Take control from the client that has it; it is told.' },
} as const;

const cancel: Command = {
  path: ['session', 'cancel'],
  summary: 'Cancel what runs in a session, and wait until its end has been observed.',
  args: 'SESSION',
  options: takeOver,
  details: [],
  exits: {
    0: 'it came to rest',
    1: 'the stop could not be confirmed',
    4: 'another client controls it, or nothing runs',
  },
  async run(invocation) {
    const { out } = invocation;
    const link = await invocation.kernel.connect();
    const session = await pickSession(link, invocation.args[0] ?? '');
    const token = await control(invocation, link, session);
    await link.call('session/cancel', { session: session.id, token });
    const last = await follow(invocation, link, session, null);
    out.value(last);
    const attempt = last.attempts.at(-1);
    return attempt === undefined || attempt.settlement === null || attempt.settlement.confirmed
      ? exitCodes.ok
      : exitCodes.failed;
  },
};

const attempt: Command = {
  path: ['session', 'attempt'],
  summary: 'Start another attempt within the budget, and watch.',
  args: 'SESSION',
  options: {
    ...takeOver,
    ...extendOptions,
    feedback: { type: 'string', value: 'TEXT', help: 'Words that the model is given with the instruction.' },
  },
  details: ['From the original snapshot. Ctrl-C cancels, as in session start.'],
  exits: {
    0: 'a candidate came out and passed its verification',
    1: 'anything else came out',
    4: 'the budget is spent, or another client controls the session',
  },
  async run(invocation) {
    const { out } = invocation;
    const link = await invocation.kernel.connect();
    const session = await pickSession(link, invocation.args[0] ?? '');
    const token = await control(invocation, link, session);
    const extend = extension(invocation);
    if (extend !== undefined) await link.call('session/extend', { session: session.id, ...extend });
    const feedback = text(invocation, 'feedback');
    const started = await link.call('session/attempt', {
      session: session.id,
      token,
      ...(feedback === undefined ? {} : { feedback }),
    });
    const last = await follow(invocation, link, started, token);
    out.line(styled('dim', '→ '), whatNext(last));
    out.value(last);
    return exitOf(last, invocation.interrupted.aborted);
  },
};

const close: Command = {
  path: ['session', 'close'],
  summary: 'Close a session: nothing more will run in it. Its evidence stays.',
  args: 'SESSION',
  options: takeOver,
  details: [],
  exits: {},
  async run(invocation) {
    const { out } = invocation;
    const link = await invocation.kernel.connect();
    const session = await pickSession(link, invocation.args[0] ?? '');
    const closed = await link.call('session/close', {
      session: session.id,
      token: await control(invocation, link, session),
    });
    out.line(`${closed.id} is ${closed.state}.`);
    out.value(closed);
    return exitCodes.ok;
  },
};

export const sessionCommands: readonly Command[] = [start, list, show, cancel, attempt, close];
