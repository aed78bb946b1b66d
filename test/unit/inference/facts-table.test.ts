import { afterEach, describe, expect, test } from 'vitest';
import type { EngineTiming } from '../../../src/server/inference/engine-deps.ts';
import type { AgentEnd } from '../../../src/server/agent/port.ts';
import {
  callLine,
  honestLoaded,
  lastLine,
  line,
  peerModel,
  startOllamaPeer,
  streaming,
} from '../../fixtures/bad-peers/ollama-peer.ts';
import type { OllamaPeer, PeerBehaviour } from '../../fixtures/bad-peers/ollama-peer.ts';
import { runOn } from '../../fixtures/agent-run.ts';
import { frozenContract } from '../../fixtures/frozen-contract.ts';
import { MemorySandbox } from '../../fixtures/memory-sandbox.ts';
import { chatOnce, engineOn } from '../../fixtures/ollama-chat.ts';
import { createOllamaEngine } from '../../../src/server/inference/ollama.ts';

let peer: OllamaPeer | undefined;
afterEach(async () => peer?.close());

type Chat = NonNullable<PeerBehaviour['chat']>;
const refuse =
  (status: number, error: string): Chat =>
  (response) =>
    void response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify({ error }));
const stream =
  (...lines: readonly string[]): Chat =>
  (response) =>
    void streaming(response).end(lines.join(''));
const errorLine = (error: string): string => `${JSON.stringify({ error })}\n`;
const ended = (more: Readonly<Record<string, unknown>>): string =>
  line({}, { done: true, done_reason: 'stop', ...more });

/**
 * Every report of facts/ollama-wire ("What goes wrong, and what the client owes"): the symptom as an engine shows it,
 * and the one way in which the attempt ends. None is turned into another.
 */
const reports: readonly {
  readonly report: string;
  readonly symptom: string;
  readonly peer: PeerBehaviour;
  readonly end: { readonly kind: AgentEnd['kind']; readonly code?: string; readonly which?: string };
  /** Requests that reached the engine. */
  readonly sent: number;
  /** Short waits, only where the report is about waiting. */
  readonly waits?: Partial<EngineTiming>;
}[] = [
  {
    report: '#3839 #17889 #17427',
    symptom: 'a cut prompt answered with 200: the count is far below the bytes',
    peer: { chat: stream(line({ content: 'ok' }), ended({ prompt_eval_count: 5, eval_count: 1 })) },
    end: { kind: 'transport', code: 'prompt_truncated' },
    sent: 1,
  },
  {
    report: '#18107',
    symptom: 'truncation drops the turn of the user, 500',
    peer: { chat: refuse(500, 'after truncation no user query found in messages') },
    end: { kind: 'limit', which: 'context' },
    sent: 1,
  },
  {
    report: '#10899 #10976',
    symptom: 'tools or thinking, and empty turns',
    peer: { chat: stream(lastLine) },
    end: { kind: 'model_fault', code: 'monologue' },
    sent: 3,
  },
  {
    report: '#16184',
    symptom: 'the budget eaten by thinking, with "length"',
    peer: {
      chat: stream(
        line({ thinking: 'hm' }),
        ended({ done_reason: 'length', prompt_eval_count: 400, eval_count: 1536 }),
      ),
    },
    end: { kind: 'limit', which: 'output' },
    sent: 3,
  },
  {
    report: '#11185 #11381',
    symptom: 'a call as text: answered with a hint, never done',
    peer: { chat: stream(line({ content: '{"name":"terminal","arguments":{"command":"rm -rf /"}}' }), lastLine) },
    end: { kind: 'model_fault', code: 'monologue' },
    sent: 3,
  },
  {
    report: '#11704',
    symptom: 'a tool that was not declared',
    peer: { chat: stream(callLine('delete_everything', { path: '/' }), lastLine) },
    end: { kind: 'model_fault', code: 'repeated_error' },
    sent: 3,
  },
  {
    report: '#11991',
    symptom: 'channel markers in the name',
    peer: { chat: stream(callLine('finish<|channel|>commentary', { message: 'x' }), lastLine) },
    end: { kind: 'finished' },
    // Asked back once, since nothing was changed.
    sent: 2,
  },
  ...(
    [
      [
        '#12884',
        "error parsing tool call: raw='{\"command\": view}', err=invalid character 'v' looking for beginning of value",
      ],
      ['#12064', "error parsing tool call: raw='', err=unexpected end of JSON input"],
      ['#17638', 'XML syntax error on line 9: element <parameter> closed by </function>'],
      ['#14834', 'failed to parse tool call: missing field'],
      ['#17276', "error parsing tool call: raw='x', err=invalid character 'x' in literal null"],
      ['#18563', 'Failed to parse input at pos 12: <tool_call>'],
      ['#12380', "error parsing tool call: raw='{}{}', err=invalid character '{' after top-level value"],
    ] as const
  ).map(([report, error]) => ({
    report,
    symptom: `500: ${error.slice(0, 40)}`,
    peer: { chat: refuse(500, error) },
    end: { kind: 'model_fault', code: 'tool_call_unparsable' } as const,
    // With a hint the second request is another one; the same is never sent again.
    sent: 2,
  })),
  ...['#16383', '#15315'].map((report) => ({
    report,
    symptom: 'the same inside a 200',
    peer: {
      chat: stream(
        line({ content: 'I call' }),
        errorLine("error parsing tool call: raw='{', err=unexpected end of JSON input"),
      ),
    },
    end: { kind: 'model_fault', code: 'tool_call_unparsable' } as const,
    sent: 2,
  })),
  {
    report: '#15457',
    symptom: 'parallel calls, all with index 0: both are done',
    peer: {
      chat: stream(
        callLine('think', { thought: 'one' }),
        callLine('think', { thought: 'two' }),
        callLine('finish', { message: 'x' }),
        lastLine,
      ),
    },
    end: { kind: 'finished' },
    sent: 2,
  },
  {
    report: '#13154 #18044',
    symptom: '"think: false" ignored, a stray closer: the call after it is done',
    peer: { chat: stream(line({ content: 'so I finish</think>' }), callLine('finish', { message: 'x' }), lastLine) },
    end: { kind: 'finished' },
    sent: 2,
  },
  {
    report: '#10927 #15363',
    symptom: 'endless thinking',
    peer: { chat: stream(...Array.from({ length: 900 }, () => line({ thinking: 'Wait, let me think. ' })), lastLine) },
    end: { kind: 'model_fault', code: 'repetition' },
    sent: 2,
  },
  {
    report: '#11889 #2876',
    symptom: 'it goes on working after its client left: the next request is not sent into that',
    peer: {
      chat: stream(...Array.from({ length: 900 }, () => line({ content: 'and again ' })), lastLine),
      goesOn: () => true,
    },
    end: { kind: 'transport', code: 'engine_busy' },
    sent: 1,
    waits: { idleMs: 200 },
  },
  {
    report: '#10015 #17118',
    symptom: 'a proper end without the last line',
    peer: { chat: stream(line({ content: 'half of it' })) },
    end: { kind: 'transport', code: 'no_done' },
    sent: 1,
  },
  {
    report: '#8258 #8948',
    symptom: '"unexpected EOF"',
    peer: { chat: stream(line({ content: 'half' }), errorLine('unexpected EOF')) },
    end: { kind: 'transport', code: 'engine_eof' },
    sent: 1,
  },
  {
    report: '#9782',
    symptom: 'out of memory on load',
    peer: { chat: refuse(500, 'llama runner process has terminated: cudaMalloc failed: out of memory') },
    end: { kind: 'resource', code: 'out_of_memory' },
    sent: 1,
  },
  {
    report: '#7573',
    symptom: '503, the queue is full',
    peer: { chat: refuse(503, 'server busy, please try again. maximum pending requests exceeded') },
    end: { kind: 'transport', code: 'queue_full' },
    sent: 1,
  },
  {
    report: '#8348',
    symptom: 'hangs: alive, but never answers',
    peer: { chat: () => undefined },
    end: { kind: 'transport', code: 'load_timeout' },
    sent: 1,
    waits: { loadMs: 400, probeMs: 40 },
  },
  {
    report: 'identity: #11922',
    symptom: 'another runner than the bound model answered',
    peer: { ps: (chats) => (chats === 0 ? [] : [{ ...honestLoaded, digest: 'd'.repeat(64) }]) },
    end: { kind: 'transport', code: 'loaded_digest_differs' },
    sent: 1,
  },
  {
    report: 'reload: #6148 #12783 #9977',
    symptom: 'the runner came up with a smaller context',
    peer: { ps: (chats) => (chats === 0 ? [] : [{ ...honestLoaded, context_length: 2048 }]) },
    end: { kind: 'transport', code: 'context_smaller' },
    sent: 1,
  },
];

describe('what is reported of Ollama ends as what it is', () => {
  test.each(reports)('$report: $symptom', async ({ peer: behaviour, end, sent, waits }) => {
    peer = await startOllamaPeer({
      ps: (chats) => (chats === 0 ? [] : [{ ...honestLoaded, context_length: 16_384 }]),
      ...behaviour,
    });
    const run = await runOn(engineOn(peer.host, waits), peerModel, {
      contract: frozenContract({ requests: 8 }),
      sandbox: new MemorySandbox({ 'src/usage.py': 'x = 1\n', 'tests/test_usage.py': '' }),
    });
    expect(run.end).toMatchObject(end);
    expect(peer.chats).toHaveLength(sent);
    // Never the same request twice.
    expect(new Set(peer.chats).size).toBe(sent);
  });

  test('#15260 #14850 #11037 #8063: a format is never asked for, so none can suppress calls or go unmet', async () => {
    peer = await startOllamaPeer({
      ps: (chats) => (chats === 0 ? [] : [{ ...honestLoaded, context_length: 16_384 }]),
      chat: stream(line({ content: 'hm' }), lastLine),
    });
    await runOn(engineOn(peer.host), peerModel, {
      contract: frozenContract({ requests: 8 }),
      sandbox: new MemorySandbox({ 'src/usage.py': 'x = 1\n', 'tests/test_usage.py': '' }),
    });
    expect(peer.chats.length).toBeGreaterThan(1);
    for (const body of peer.chats) expect(Object.keys(JSON.parse(body))).not.toContain('format');
  });

  test('llama_index#22464: two equal calls in one answer are done twice', async () => {
    peer = await startOllamaPeer({
      ps: (chats) => (chats === 0 ? [] : [{ ...honestLoaded, context_length: 16_384 }]),
      chat: stream(
        callLine('terminal', { command: 'true' }),
        callLine('terminal', { command: 'true' }),
        callLine('finish', { message: 'x' }),
        lastLine,
      ),
    });
    const sandbox = new MemorySandbox({ 'src/usage.py': 'x = 1\n' }, { unit: () => ({}) });
    await runOn(engineOn(peer.host), peerModel, {
      contract: frozenContract({ checks: [{ id: 'unit', argv: ['true'] }] }),
      sandbox,
    });
    expect(sandbox.calls.filter((call) => call === 'run unit').length).toBeGreaterThanOrEqual(2);
  });

  test('ollama-js#72 #144: headers after the 300 s of a client stack are waited for, as long as the engine lives', async () => {
    let answer: (() => void) | undefined;
    peer = await startOllamaPeer({
      ps: (chats) => (chats === 0 ? [] : [{ ...honestLoaded, context_length: 16_384 }]),
      chat: (response) => {
        answer = () => void streaming(response).end(callLine('finish', { message: 'x' }) + lastLine);
      },
    });
    // Each look at the clock is a minute later, so the wait is hours by the clock that decides.
    let minutes = 0;
    const engine = createOllamaEngine({
      host: peer.host,
      kind: 'ollama',
      now: () => 0,
      monotonic: () => {
        minutes += 1;
        if (minutes > 6) {
          answer?.();
          answer = undefined;
        }
        return minutes * 60_000;
      },
      log: () => undefined,
      loadMs: 3_600_000,
      stallMs: 36_000_000,
      probeMs: 10,
    });
    const turn = await chatOnce(engine);
    expect(turn.toolCalls[0]?.name).toBe('finish');
    expect(turn.receipt.wallMs).toBeGreaterThan(300_000);
  });
});
