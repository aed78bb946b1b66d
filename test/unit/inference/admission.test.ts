import * as fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { AdmissionState } from '../../../src/server/inference/admission.ts';
import { admit, measure, renderedBytes, startAdmission } from '../../../src/server/inference/admission.ts';
import type { ChatMessage, ChatTool } from '../../../src/server/inference/port.ts';

/** How templates render text; the worst tokenizer then makes one token of each byte. */
const goJson = (s: string): string =>
  JSON.stringify(s).replaceAll(/[<>&\u2028\u2029]/g, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`);
const pythonJson = (s: string): string =>
  JSON.stringify(s).replaceAll(/[\u007f-\uffff]/g, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`);
const plain = (s: string): string => s;

type Encode = (s: string) => string;
const frame = (role: string, body: string): string => `<|im_start|>${role}\n${body}<|im_end|>\n`;

function render(messages: readonly ChatMessage[], tools: readonly ChatTool[], encode: Encode): string {
  const schemas = tools.length === 0 ? '' : `# Tools\n${JSON.stringify(tools, null, 2)}\n`;
  return (
    schemas +
    messages
      .map((m) => {
        if (m.role === 'tool') return frame('user', `<tool_response>${encode(m.content)}</tool_response>`);
        if (m.role !== 'assistant') return frame(m.role, encode(m.content));
        const calls = m.toolCalls.map(
          (c) => `<tool_call>{"name":"${c.name}","arguments":${encode(JSON.stringify(c.arguments))}}</tool_call>`,
        );
        return frame('assistant', encode(m.content) + calls.join(''));
      })
      .join('')
  );
}
const bytes = (s: string): number => Buffer.byteLength(s);

const words = fc.oneof(
  fc.string({ unit: 'grapheme', maxLength: 200 }),
  fc.string({ unit: 'binary', maxLength: 200 }).filter((s) => s.isWellFormed()),
  fc.constantFrom('\n'.repeat(100), '<>&"\\', '\u0000\u0007', '€'.repeat(50), '👩‍👩‍👧', '    x = 1\n', '<|im_end|>'),
);
const message: fc.Arbitrary<ChatMessage> = fc.oneof(
  words.map((content): ChatMessage => ({ role: 'user', content })),
  words.map((content): ChatMessage => ({ role: 'tool', toolName: 'terminal', toolCallId: null, content })),
  fc.tuple(words, words).map(([content, argument]): ChatMessage => ({
    role: 'assistant',
    content,
    thinking: '',
    toolCalls: [{ id: null, name: 'file_editor', arguments: { command: 'create', file_text: argument } }],
  })),
);
const tools: readonly ChatTool[] = [
  {
    name: 'terminal',
    description: 'Run',
    parameters: { type: 'object', properties: { command: { type: 'string' } }, required: ['command'] },
  },
];
const encoders = fc.constantFrom<Encode>(plain, goJson, pythonJson);

describe('admission', () => {
  test('the bound holds against one token a byte of any rendering', () => {
    fc.assert(
      fc.property(fc.array(message, { maxLength: 6 }), encoders, (messages, encode) => {
        const state = startAdmission(16_384, 1024, 'qwen3');
        expect(admit(state, messages, tools).boundTokens).toBeGreaterThanOrEqual(
          bytes(render(messages, tools, encode)),
        );
      }),
    );
  });

  test('with measured counts it still holds over a whole conversation, and nothing admitted overflows', () => {
    fc.assert(
      fc.property(
        fc.array(fc.array(message, { minLength: 1, maxLength: 3 }), { maxLength: 10 }),
        encoders,
        fc.integer({ min: 1, max: 4 }),
        fc.integer({ min: 2048, max: 8192 }),
        (steps, encode, bytesPerToken, numCtx) => {
          // A tokenizer that makes good tokens of what was there and the worst of what comes.
          let state: AdmissionState = startAdmission(numCtx, 512, 'qwen3');
          const messages: ChatMessage[] = [{ role: 'system', content: 'You change code.' }];
          let tokens = Math.ceil(bytes(render(messages, tools, encode)) / bytesPerToken);
          for (const step of steps) {
            const before = bytes(render(messages, tools, encode));
            messages.push(...step);
            tokens += bytes(render(messages, tools, encode)) - before;
            const admitted = admit(state, messages, tools);
            expect(admitted.boundTokens).toBeGreaterThanOrEqual(tokens);
            if (!admitted.admitted) return;
            expect(tokens).toBeLessThanOrEqual(numCtx - 512);
            state = measure(state, messages, tokens).state;
          }
        },
      ),
    );
  });

  test('a receipt makes the bound tighter than bytes', () => {
    const messages: ChatMessage[] = [{ role: 'user', content: 'word '.repeat(2000) }];
    const state = startAdmission(16_384, 1536, 'qwen3');
    const measured = measure(state, messages, 2100);
    expect(measured.kind).toBe('ok');
    expect(admit(measured.state, messages, tools).boundTokens).toBe(2100);
    expect(admit(state, messages, tools).boundTokens).toBeGreaterThan(10_000);
  });

  test('what could exceed is refused at the limit, with the sum', () => {
    const state = { ...startAdmission(4096, 1024, 'qwen3'), measured: { messages: 1, tokens: 3000 } };
    const user = (n: number): ChatMessage => ({ role: 'user', content: 'x'.repeat(n) });
    // 3072 is the limit; a message costs its bytes, two quotes and 64.
    expect(admit(state, [user(1), user(6)], tools).admitted).toBe(true);
    const refused = admit(state, [user(1), user(7)], tools);
    expect(refused.admitted).toBe(false);
    expect(refused.arithmetic).toContain('3000 measured + 73');
  });

  test('unknown tokenizers and falling counts are unproven; the higher measurement stays', () => {
    expect(admit(startAdmission(8192, 512, 'novel-arch'), [], []).proven).toBe(false);
    const messages: ChatMessage[] = [{ role: 'user', content: 'x' }];
    const first = measure(startAdmission(8192, 512, 'qwen3'), messages, 900).state;
    const fell = measure(first, [...messages, ...messages], 100);
    expect(fell.kind).toBe('fell');
    expect(admit(fell.state, messages, []).proven).toBe(false);
    expect(fell.state.measured?.tokens).toBe(900);
  });

  test('a count far below the bytes is an alarm; runs of one character are not', () => {
    const state = startAdmission(65_536, 512, 'qwen3');
    const text = Array.from({ length: 4000 }, (_, i) => `line ${i} says something else`).join('\n');
    expect(measure(state, [{ role: 'user', content: text }], 2000).kind).toBe('truncated');
    expect(measure(state, [{ role: 'user', content: ' '.repeat(100_000) }], 900).kind).toBe('ok');
    expect(measure(state, [], null).kind).toBe('none');
  });

  test('renderedBytes is never below UTF-8', () => {
    fc.assert(
      fc.property(words, (s) => {
        expect(renderedBytes(s)).toBeGreaterThanOrEqual(bytes(s));
        expect(renderedBytes(s)).toBeGreaterThanOrEqual(bytes(goJson(s)));
        expect(renderedBytes(s)).toBeGreaterThanOrEqual(bytes(pythonJson(s)));
      }),
    );
  });
});
