import { admit, measure, renderedBytes, startAdmission } from '../../../src/server/inference/admission.ts';
import type { ChatMessage, ChatTool } from '../../../src/server/inference/port.ts';
import { qwenPrompt, qwenTokens } from '../../fixtures/qwen.ts';
import type { Figure } from '../figures.ts';

/** Small models run with this much; output as the contract's default. */
const numCtx = 8192;
const numPredict = 1536;

/** Turns of a conversation that a guard admits before it refuses, and whether one of them overflowed. */
interface Admitted {
  readonly turns: number;
  readonly overflowed: boolean;
}

/**
 * Goes through a recorded conversation as often as needed, a turn (assistant and its answers) at a time. `bound` is given
 * the messages of the next request and the counts of those before.
 */
export function turnsAdmitted(
  first: readonly ChatMessage[],
  turns: readonly (readonly ChatMessage[])[],
  tools: readonly ChatTool[],
  guard: (messages: readonly ChatMessage[]) => { admitted: boolean; took(tokens: number): void },
): Admitted {
  const messages: ChatMessage[] = [...first];
  let overflowed = false;
  for (let n = 0; n < 1000; n += 1) {
    const asked = guard(messages);
    if (!asked.admitted) return { turns: n, overflowed };
    const tokens = qwenTokens(qwenPrompt(messages, tools));
    if (tokens > numCtx - numPredict) overflowed = true;
    if (overflowed) return { turns: n, overflowed };
    asked.took(tokens);
    messages.push(...(turns[n % turns.length] ?? []));
  }
  throw new Error('the conversation never filled the context');
}

/** The bound from receipts against guards that know bytes alone, on the same recorded conversation. */
export function admittedFigures(
  first: readonly ChatMessage[],
  turns: readonly (readonly ChatMessage[])[],
  tools: readonly ChatTool[],
): readonly Figure[] {
  let state = startAdmission(numCtx, numPredict, 'qwen3');
  const bound = turnsAdmitted(first, turns, tools, (messages) => ({
    admitted: admit(state, messages, tools).admitted,
    took: (tokens) => {
      state = measure(state, messages.slice(), tokens).state;
    },
  }));
  /** From bytes alone, `bytesPerToken` bytes a token: 1 is as safe as the bound, 3 is a usual guess for code. */
  const byBytes = (bytesPerToken: number): Admitted =>
    turnsAdmitted(first, turns, tools, (messages) => {
      const bytes = renderedBytes(JSON.stringify([messages, tools]));
      return { admitted: bytes / bytesPerToken <= numCtx - numPredict, took: () => undefined };
    });
  const safe = byBytes(1);
  const guess = byBytes(3);
  if (bound.overflowed || safe.overflowed) throw new Error('a proven bound admitted an overflow');
  const count = (name: string, value: number, aim: string | null = null): Figure => ({
    name,
    value,
    unit: 'count',
    aim,
    samples: [value],
  });
  return [
    count('turns_admitted_bound', bound.turns),
    count('turns_admitted_bytes', safe.turns),
    count('turns_admitted_bytes_by_3', guess.turns),
    count('bytes_by_3_overflowed', guess.overflowed ? 1 : 0),
    { ...count('turns_bound_to_bytes', bound.turns / Math.max(1, safe.turns), '> 1'), unit: 'ratio' },
  ];
}
