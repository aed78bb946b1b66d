import { canonicalTag } from './cloud.ts';
import type { Answer, AnswerReader } from './exchange.ts';
import { Fault } from './fault.ts';
import type { ChatEvent, ToolCall } from './port.ts';
import { RepetitionWatch } from './repetition.ts';
import { classifyEngineError, errorText } from './symptoms.ts';
import { splitThinking } from './think-split.ts';
import { Chunk, jsonDepth } from './wire.ts';

/** Tool arguments nested deeper than any tool here needs are refused before anything recurses into them. */
export const argumentDepth = 32;
/** Calls in one turn; more than any useful turn has. */
export const callsPerTurn = 32;

/** Throws `Fault` where a model does not find its end. */
export function refuseEndless(watch: RepetitionWatch, piece: string): void {
  watch.push(piece);
  if (watch.endless) throw new Fault('model', 'repetition', 'the answer is one piece over and over: it was cut off');
}

/** Reads the lines of an answer of `/api/chat`. `model` is the tag that was asked. */
export function ollamaAnswerReader(model: string, onEvent: (event: ChatEvent) => void): AnswerReader<Chunk> {
  const asked = canonicalTag(model);
  let content = '';
  let thinking = '';
  const calls: ToolCall[] = [];
  const repetition = new RepetitionWatch();
  let last: Chunk | null = null;

  const text = (kind: 'thinking' | 'content', piece: string): void => {
    if (kind === 'thinking') thinking += piece;
    else content += piece;
    refuseEndless(repetition, piece);
    onEvent({ kind, text: piece });
  };

  return {
    get last() {
      return last;
    },
    take(value) {
      if (last?.done === true)
        throw new Fault('transport', 'data_after_done', 'the engine went on after its last line');
      // Nearly every line is a bare piece of text; it needs no schema to be read as strictly.
      const piece = pieceOf(value, model);
      if (piece !== null) {
        if (piece !== '') text('content', piece);
        return;
      }
      if (typeof value === 'object' && value !== null && 'error' in value && value.error !== undefined) {
        const message = errorText(value.error);
        const symptom = classifyEngineError(200, message);
        throw new Fault(symptom.kind, symptom.code, `error inside the answer: ${message.slice(0, 400)}`);
      }
      const parsed = Chunk.safeParse(value);
      if (!parsed.success) throw new Fault('transport', 'unknown_shape', 'a line of the answer has an unknown shape');
      const chunk = parsed.data;
      if (chunk.remote_host || chunk.remote_model)
        throw new Fault('unsupported', 'cloud_response', 'the answer came from a remote host: cut off and not used');
      if (canonicalTag(chunk.model) !== asked)
        throw new Fault('identity', 'model_substituted', 'the answer names another model than the one asked');
      last = chunk;
      if (chunk.message.thinking) text('thinking', chunk.message.thinking);
      if (chunk.message.content) text('content', chunk.message.content);
      // In order of arrival: indices may all be 0, ids may be missing, equal calls are two calls.
      for (const call of chunk.message.tool_calls ?? []) {
        if (calls.length >= callsPerTurn) throw new Fault('model', 'too_many_calls', `more than ${callsPerTurn} calls`);
        if (jsonDepth(call.function.arguments, argumentDepth) > argumentDepth)
          throw new Fault('model', 'arguments_too_deep', `arguments nested deeper than ${argumentDepth}`);
        calls.push({ id: call.id ?? null, name: call.function.name, arguments: call.function.arguments ?? null });
      }
    },
    end(): Answer<Chunk> {
      if (last?.done !== true)
        throw new Fault('transport', 'no_done', 'the stream ended with status 200 and without its last line');
      if (last.done_reason === 'load' || last.done_reason === 'unload')
        throw new Fault(
          'transport',
          'not_generated',
          `the engine answered "${last.done_reason}" and generated nothing`,
        );
      return {
        ...splitThinking(content, thinking),
        toolCalls: calls,
        doneReason: last.done_reason ?? '',
        last,
      };
    },
  };
}

/** Members of a line that is nothing but a piece of content, and of its message. */
const pieceMembers = { line: 4, message: 2 } as const;

/**
 * The text of a line that holds nothing but a piece of content: these four members, two in the message, `done` false,
 * the very name that was asked. Null for every other line, which then goes through the schema.
 */
function pieceOf(value: unknown, model: string): string | null {
  if (typeof value !== 'object' || value === null) return null;
  const line = value as Readonly<Record<string, unknown>>;
  if (line['done'] !== false || line['model'] !== model || typeof line['created_at'] !== 'string') return null;
  const message = line['message'];
  if (typeof message !== 'object' || message === null) return null;
  const { role, content } = message as Readonly<Record<string, unknown>>;
  if (typeof role !== 'string' || typeof content !== 'string') return null;
  return Object.keys(line).length === pieceMembers.line && Object.keys(message).length === pieceMembers.message
    ? content
    : null;
}
