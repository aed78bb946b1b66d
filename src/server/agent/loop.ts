import type { FrozenContract } from '../../protocol/contract.ts';
import { canonicalJson } from '../../protocol/hash.ts';
import { unreachable } from '../../protocol/primitives.ts';
import { admit, measure, renderedBytes, startAdmission } from '../inference/admission.ts';
import type { Admitted } from '../inference/admission.ts';
import type { ChatMessage, ChatTurn, ToolCall } from '../inference/port.ts';
import { InferenceFailure } from '../inference/port.ts';
import { SandboxFault } from '../sandbox/port.ts';
import { ScopeUnavailable } from '../scope/port.ts';
import { headAndTail } from './command-output.ts';
import type { AgentDeps, AgentEnd, AgentInput, RunAgent } from './port.ts';
import { visibleChecks } from './policy.ts';
import { quoteArgv } from './tokenizer.ts';
import { firstMessages, offeredTools } from './prompt.ts';
import { findStuck, stuckLimits } from './stuck.ts';
import type { Step } from './stuck.ts';
import { callsInText, readCall } from './tolerant.ts';
import type { WorkCall } from './tolerant.ts';
import { createToolbox } from './toolbox.ts';
import type { Toolbox, ToolOutcome } from './toolbox.ts';

/** Characters of a text in an activity line; the whole is in the artefacts of the turn. */
const activityText = 8000;
/** Failures of the model's own making (an unparsable call) that are answered with a hint before the attempt ends. */
const modelFailures = 2;
/** Turns cut by the output budget, in a row. */
const cutTurns = 3;
/** Times that the sandbox may run out of something before it counts as a configuration blocker. */
const exhaustions = 2;

/** One step before the limits the model is told. */
const warningLimits = {
  repeat: stuckLimits.repeat - 1,
  error: stuckLimits.error - 1,
  monologue: stuckLimits.monologue,
  alternation: stuckLimits.alternation - 1,
};
const circlingText = 'You did this before with the same result. Do something else.';

/** Share of the room left in the context that one answer may take, and what it gets at least (rendered bytes). */
const answerShare = 0.7;
const leastAnswer = 1500;

/** Why the run's own signal ended: a person (or a settlement), or the contract's time. */
const wallReached = Symbol('wall');

/** Thrown inside the loop to leave it; never leaves this module. */
class Ended extends Error {
  readonly end: AgentEnd;
  constructor(end: AgentEnd) {
    super(end.kind);
    this.end = end;
  }
}

/**
 * The native agent: asks the model, reads its calls, does what the contract permits, answers, until `finish` or a limit.
 * A request is recorded before it is sent, and all that a turn caused is recorded before the next. It ends with an
 * `AgentEnd` for everything that can happen; it throws for defects only.
 */
export const runAgent: RunAgent = async (input, deps, signal) => {
  const wall = new AbortController();
  const wallMs = input.contract.budget.wallS * 1000;
  const timer = setTimeout(() => {
    wall.abort(wallReached);
  }, wallMs);
  const both = AbortSignal.any([signal, wall.signal]);
  const stopped = (): AgentEnd =>
    signal.aborted
      ? { kind: 'cancelled' }
      : { kind: 'limit', which: 'wall', detail: `the contract's ${input.contract.budget.wallS} s are over` };
  try {
    return await converse(input, deps, both, deps.monotonic() + wallMs);
  } catch (error) {
    if (both.aborted) return stopped();
    if (error instanceof Ended) return error.end;
    if (ScopeUnavailable.is(error)) return { kind: 'infrastructure', code: 'scope_unavailable', detail: error.message };
    if (SandboxFault.is(error)) {
      return { kind: 'infrastructure', code: error.code, detail: error.message };
    }
    throw error;
  } finally {
    clearTimeout(timer);
  }
};

async function converse(input: AgentInput, deps: AgentDeps, signal: AbortSignal, deadline: number): Promise<AgentEnd> {
  const { contract, binding } = input;
  const { switches, options } = binding;
  const budget = contract.budget.requestsPerAttempt;
  const tools = offeredTools(contract);
  const offered = tools.map((tool) => tool.name);
  const toolbox = createToolbox(contract, switches, deps.sandbox, deps.scope);
  const messages: ChatMessage[] = [...firstMessages(contract, input.feedback)];
  const steps: Step[] = [];
  let admission = startAdmission(options.numCtx, options.numPredict, binding.model.family);
  let failures = 0;
  let cut = 0;
  let exhausted = 0;
  let finishAsked = false;

  const note = async (
    kind: 'think' | 'message' | 'tool' | 'denied' | 'result' | 'hint',
    title: string,
    text: string,
    ok: boolean | null = null,
  ): Promise<void> => deps.record({ kind: 'activity', item: { kind, title, text: text.slice(0, activityText), ok } });
  const hint = async (title: string, text: string): Promise<void> => {
    messages.push({ role: 'user', content: text });
    await note('hint', title, text);
  };
  const end = (value: AgentEnd): never => {
    throw new Ended(value);
  };
  /** Nothing is left to do but to say so. */
  const done = (): boolean => toolbox.edited() && toolbox.allPassed() && toolbox.outOfScope() === null;
  const checkStuck = (): void => {
    const stuck = findStuck(steps);
    if (stuck !== null) {
      end({
        kind: 'model_fault',
        code: stuck,
        detail: `the model went in circles (${stuck}); last: ${steps.at(-1)?.action?.slice(0, 200) ?? 'no call'}`,
      });
    }
  };

  for (let n = 1; n <= budget; n += 1) {
    signal.throwIfAborted();
    if (deps.monotonic() >= deadline)
      return { kind: 'limit', which: 'wall', detail: `the contract's ${contract.budget.wallS} s are over` };

    // The last request is kept for `finish` where everything visible has passed: a right edit must not end as a limit.
    const kept = n === budget && done();
    if (kept)
      await hint('finish', 'All checks pass and this is the last request. Call finish now; nothing else will be done.');

    const admitted = admit(admission, messages, tools);
    if (!admitted.admitted) return { kind: 'limit', which: 'context', detail: admitted.arithmetic };

    await deps.record({ kind: 'request', n, boundTokens: admitted.boundTokens, proven: admitted.proven });
    const asked = messages.slice();
    let turn: ChatTurn;
    try {
      turn = await deps.chat(asked, tools, signal);
    } catch (error) {
      if (!InferenceFailure.is(error)) throw error;
      await deps.record({ kind: 'failure', n, failure: error });
      signal.throwIfAborted();
      failures += 1;
      if (error.kind !== 'model' || failures >= modelFailures) return endOfFailure(error);
      // The same request is never sent again: the hint makes it another one.
      await hint(
        error.code,
        'Your last answer was not a valid tool call and was dropped. Make one call with its arguments as one JSON object.',
      );
      continue;
    }
    failures = 0;
    await deps.record({ kind: 'turn', n, turn });
    signal.throwIfAborted();

    const measured = measure(admission, asked, turn.receipt.promptTokens);
    admission = measured.state;
    if (measured.kind === 'truncated')
      return {
        kind: 'transport',
        code: 'prompt_truncated',
        detail: `the engine counted ${turn.receipt.promptTokens} tokens where at least ${measured.floor} must be: the prompt was cut`,
      };
    if (measured.kind === 'fell')
      await note(
        'hint',
        'token_count_fell',
        'The engine counted fewer tokens for a longer prompt: the bound is unproven from here on.',
      );

    if (turn.thinking.trim() !== '') await note('think', 'thinking', turn.thinking);
    if (turn.content.trim() !== '') await note('message', 'message', turn.content);
    messages.push({ role: 'assistant', content: turn.content, thinking: turn.thinking, toolCalls: turn.toolCalls });

    const printed = turn.toolCalls.length === 0 ? callsInText(turn.content, offered) : [];
    const asText = printed.length > 0 && switches.executeTextCalls;
    const calls = asText ? printed : turn.toolCalls;

    if (calls.length === 0) {
      cut = turn.doneReason === 'length' ? cut + 1 : 0;
      if (cut >= cutTurns)
        return {
          kind: 'limit',
          which: 'output',
          detail: `${cut} answers in a row were cut at ${options.numPredict} tokens without a call`,
        };
      steps.push({ action: null, observation: turn.content.slice(0, 2000), error: false });
      if (cut === 0) checkStuck();
      if (!switches.nudgeEmptyTurn)
        return { kind: 'model_fault', code: 'empty_turn', detail: 'an answer without a tool call' };
      if (kept) continue;
      if (turn.doneReason === 'length')
        await hint('cut', `Your answer was cut at ${options.numPredict} tokens. Think less and make one short call.`);
      else if (printed.length > 0)
        await hint(
          'call_as_text',
          'You wrote a tool call as text; nothing was done. Make the call with the tool interface.',
        );
      else
        await hint(
          'no_call',
          done()
            ? 'All checks pass, but an answer without a tool call ends nothing. Call finish.'
            : 'Your answer had no tool call, so nothing was done. Call a tool; call finish when all checks pass.',
        );
      continue;
    }
    cut = 0;

    let finished: string | null = null;
    for (const call of calls) {
      signal.throwIfAborted();
      if (finished !== null) {
        answerCall(messages, call, 'Not done: the task was finished by an earlier call of this answer.', asText);
        continue;
      }
      const read = readCall(call, offered);
      if (kept && !(read.ok && read.call.tool === 'finish')) {
        await note('hint', 'not_done', `only finish was still possible; ${call.name.slice(0, 60)} was not done`);
        answerCall(messages, call, 'Not done: only finish was still possible.', asText);
        continue;
      }
      if (read.ok && read.call.tool === 'finish') {
        // Not asked back once but refused: such bytes can be accepted by nobody.
        const outside = toolbox.outOfScope();
        if (outside !== null) {
          const text = `Not finished: ${outside}`;
          await toolbox.refuse('finish', 'out_of_scope');
          await note('denied', 'finish', text, false);
          answerCall(messages, call, text, asText);
          steps.push({ action: 'finish', observation: text, error: true });
          checkStuck();
          continue;
        }
        const objection = finishAsked || n === budget || !switches.finishGate ? null : objectionTo(toolbox, contract);
        if (objection !== null) {
          finishAsked = true;
          const text = `Not finished yet: ${objection} Call finish again if you are sure.`;
          await note('hint', 'finish_before_checks', text);
          answerCall(messages, call, text, asText);
          steps.push({ action: 'finish', observation: text, error: true });
          continue;
        }
        await note('tool', 'finish', read.call.message, true);
        finished = read.call.message;
        continue;
      }
      const room = roomFor(admit(admission, messages, tools));
      const outcome = await doCall(call, read, toolbox, note, signal, asText, room);
      steps.push({
        action: signature(call),
        observation: withoutTimes(outcome.text),
        error: !outcome.ok && outcome.failed,
      });
      const circling = findStuck(steps, warningLimits) !== null;
      answerCall(messages, call, circling ? `${outcome.text}\n${circlingText}` : outcome.text, asText);
      if (outcome.exhausted !== null) {
        exhausted += 1;
        if (exhausted >= exhaustions)
          return { kind: 'resource', code: outcome.exhausted, detail: outcome.text.slice(-300) };
      }
      checkStuck();
    }
    if (finished !== null) return { kind: 'finished', message: finished };
  }
  return { kind: 'limit', which: 'requests', detail: `all ${budget} requests of the attempt are used` };
}

/** Does one readable or unreadable call and records it before and after. `failed` tells an error from a failing check. */
async function doCall(
  call: ToolCall,
  read: ReturnType<typeof readCall>,
  toolbox: Toolbox,
  note: (
    kind: 'tool' | 'denied' | 'result' | 'hint',
    title: string,
    text: string,
    ok?: boolean | null,
  ) => Promise<void>,
  signal: AbortSignal,
  asText: boolean,
  room: number,
): Promise<ToolOutcome & { readonly failed: boolean }> {
  const marked = asText ? ' (printed as text)' : '';
  if (!read.ok) {
    const title = call.name.slice(0, 60);
    if (read.denied) {
      await toolbox.refuse(`${title} ${read.code}`, read.code);
      await note('denied', title, read.text, false);
    } else await note('hint', read.code, read.text, false);
    return { text: read.text, ok: false, denied: read.denied ? read.code : null, exhausted: null, failed: true };
  }
  const { call: valid } = read;
  if (valid.tool === 'think') {
    await note('tool', `think${marked}`, valid.thought, true);
    return { text: 'Noted.', ok: true, denied: null, exhausted: null, failed: false };
  }
  if (valid.tool === 'finish') throw new Error('finish is not done here');
  await note('tool', `${titleOf(valid)}${marked}`, textOf(valid));
  const full = await toolbox.act(valid, signal);
  const part =
    valid.tool === 'search' ? 'search one file or folder with path' : 'view a part of a file with view_range';
  const outcome = { ...full, text: fitted(full.text, room, part) };
  await note(outcome.denied === null ? 'result' : 'denied', titleOf(valid), outcome.text, outcome.ok);
  // A check that fails is news, not an error: it may be run again after each edit.
  return { ...outcome, failed: valid.tool !== 'terminal' || outcome.denied !== null };
}

/**
 * Rendered bytes that one answer may have. The bound counts each byte of it as a token until the next receipt, so a long
 * answer could end the attempt at a context that it would have fitted; it gets a share of what is left instead.
 */
function roomFor(next: Admitted): number {
  return Math.max(leastAnswer, Math.floor((next.limitTokens - next.boundTokens) * answerShare));
}

/** The text within its room: head and tail, and a word on how to see the rest (`part`). */
function fitted(text: string, room: number, part: string): string {
  const rendered = renderedBytes(text);
  if (rendered <= room) return text;
  const bytes = Buffer.byteLength(text, 'utf8');
  return `${headAndTail(text, Math.floor((bytes * room) / rendered))}\n[cut to fit the context; ${part}]`;
}

function answerCall(messages: ChatMessage[], call: ToolCall, text: string, asText: boolean): void {
  if (asText) messages.push({ role: 'user', content: `Result of ${call.name}:\n${text}` });
  else messages.push({ role: 'tool', toolName: call.name, toolCallId: call.id, content: text });
}

/**
 * What speaks against a finish now, or null. Asked back once: most wrong ends of small models are a check not run, or
 * nothing done at all, where the baseline has shown that a check fails on the unchanged files.
 */
function objectionTo(toolbox: Toolbox, contract: FrozenContract): string | null {
  const missing = toolbox.unproven();
  if (missing.length === 0) return null;
  if (toolbox.edited())
    return `since your last edit these checks have not passed: ${missing.join('; ')}. Run them first.`;
  const fails = visibleChecks(contract).find((check) => check.baseline === 'fail');
  return fails === undefined
    ? null
    : `nothing was changed, and \`${quoteArgv(fails.argv)}\` fails on the unchanged files.`;
}

function titleOf(call: WorkCall): string {
  switch (call.tool) {
    case 'terminal':
      return `terminal ${call.command.slice(0, 120)}`;
    case 'file_editor':
      return `${call.command} ${call.path.slice(0, 120)}`;
    case 'search':
      return `search ${call.query.slice(0, 120)}`;
    default:
      return unreachable(call);
  }
}

/** What a reader of the activity wants to see of a call. */
function textOf(call: WorkCall): string {
  if (call.tool === 'terminal') return call.command;
  if (call.tool === 'search') return call.path === null ? '' : `in ${call.path}`;
  switch (call.command) {
    case 'view':
      return call.range === null ? '' : `lines ${call.range[0]} to ${call.range[1]}`;
    case 'create':
      return call.fileText;
    case 'str_replace':
      return `replace:\n${call.oldText}\nby:\n${call.newText}`;
    case 'insert':
      return `after line ${call.line}:\n${call.newText}`;
    case 'undo_edit':
      return '';
    default:
      return unreachable(call);
  }
}

/** Durations differ between equal runs; they are no progress. */
function withoutTimes(text: string): string {
  // Each run of digits is looked at once: tried from every digit of it, a long one would take time by its square.
  return text.replaceAll(/(?<!\d)\d+(?:\.\d+)? ?(?:ms|s|seconds)\b|\bduration_ms \d+(?:\.\d+)?/g, '#');
}

function signature(call: ToolCall): string {
  try {
    return `${call.name} ${canonicalJson(call.arguments)}`;
  } catch {
    return `${call.name} (arguments without a JSON form)`;
  }
}

function endOfFailure(failure: InferenceFailure): AgentEnd {
  const { code } = failure;
  const detail = failure.message;
  switch (failure.kind) {
    case 'transport':
    case 'identity':
    case 'unsupported':
      return { kind: 'transport', code, detail };
    case 'resource':
      return { kind: 'resource', code, detail };
    case 'model':
      return { kind: 'model_fault', code, detail };
    case 'context':
      return { kind: 'limit', which: 'context', detail: `${code}: ${detail}` };
    case 'cancelled':
      return { kind: 'cancelled' };
    default:
      return unreachable(failure.kind);
  }
}
