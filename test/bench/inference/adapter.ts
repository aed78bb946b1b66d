import { fork } from 'node:child_process';
import { once } from 'node:events';
import type { InferenceEngine } from '../../../src/server/inference/port.ts';
import type { ModelIdentity } from '../../../src/protocol/binding.ts';
import { peerModel } from '../../fixtures/bad-peers/ollama-peer.ts';
import { chatOptions, engineOn } from '../../fixtures/ollama-chat.ts';
import { median, ratio, time, timed, type Figure } from '../figures.ts';

/** Pairs measured, after some that warm both sides up. */
const samples = 21;
const warming = 6;
/** Tokens of a short and of a long answer; their difference leaves what a request costs out. */
const short = 400;
const long = 8400;
/** An answer as a fast small model gives it: 200 tokens a second. */
const paced = { tokens: 128, everyMs: 5 } as const;
/** Tokens that come one by one, a thousand a second, faster than any model here: long and short answers, pairs of each. */
const single = { long: 1000, short: 100, everyMs: 1, pairs: 7 } as const;

async function ask(engine: InferenceEngine, identity: ModelIdentity, content: string): Promise<Uint8Array> {
  const turn = await engine.chat(
    {
      model: peerModel,
      messages: [{ role: 'user', content }],
      tools: [],
      options: { ...chatOptions, numPredict: 16_384 },
      engineVersion: '0.33.1',
    },
    identity,
    () => undefined,
    new AbortController().signal,
  );
  return turn.rawRequest;
}

/** What a client does at least: sends the same bytes and takes all that comes. */
async function bareFetch(host: string, body: Uint8Array): Promise<void> {
  for await (const chunk of await answered(host, body)) if (chunk.length === 0) throw new Error('an empty piece');
}

/** The same, with each line parsed: what any client of this wire has to do to read an answer. */
async function parsingFetch(host: string, body: Uint8Array): Promise<void> {
  let rest = '';
  const decoder = new TextDecoder();
  for await (const chunk of await answered(host, body)) {
    const lines = (rest + decoder.decode(chunk, { stream: true })).split('\n');
    rest = lines.pop() ?? '';
    for (const line of lines) JSON.parse(line);
  }
}

async function answered(host: string, body: Uint8Array): Promise<ReadableStream<Uint8Array>> {
  const reply = await fetch(`${host}/api/chat`, {
    method: 'POST',
    body,
    headers: { 'content-type': 'application/json' },
  });
  if (reply.body === null) throw new Error('no body');
  return reply.body;
}

/** Milliseconds of processor that this process took for some work, whatever else the machine did meanwhile. */
async function cpuOf(work: () => Promise<unknown>): Promise<number> {
  const before = process.cpuUsage();
  await work();
  const took = process.cpuUsage(before);
  return (took.user + took.system) / 1000;
}

/** The adapter (identity before and after, strict reading, receipt) against a bare fetch, engine in its own process. */
export async function adapterOverhead(say: (line: string) => void): Promise<readonly Figure[]> {
  const child = fork(new URL('token-engine.ts', import.meta.url), {
    execArgv: [],
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  });
  try {
    const [host] = (await once(child, 'message')) as [string];
    const engine = engineOn(host);
    const identity = await engine.identity(peerModel);
    const pairs = async (
      content: string,
      count: number,
    ): Promise<{ ours: number[]; bare: number[]; parsed: number[] }> => {
      const ours: number[] = [];
      const bare: number[] = [];
      const parsed: number[] = [];
      for (let n = -warming; n < count; n += 1) {
        let body: Uint8Array = new Uint8Array();
        const adapter = await timed(async () => {
          body = await ask(engine, identity, content);
        });
        const fetched = await timed(() => bareFetch(host, body));
        const read = await timed(() => parsingFetch(host, body));
        if (n < 0) continue;
        ours.push(adapter);
        bare.push(fetched);
        parsed.push(read);
      }
      return { ours, bare, parsed };
    };
    say(`adapter against a bare fetch: instant answers of ${short} and ${long} tokens, ${samples} pairs each`);
    const few = await pairs(`${short} 0`, samples);
    const many = await pairs(`${long} 0`, samples);
    say(`tokens one by one, ${single.pairs} pairs of ${single.long} and ${single.short}: processor time of the client`);
    const cpu = { ours: [] as number[], bare: [] as number[] };
    for (let n = -1; n < single.pairs; n += 1) {
      const took = { ours: 0, bare: 0 };
      for (const [count, sign] of [
        [single.long, 1],
        [single.short, -1],
      ] as const) {
        let body: Uint8Array = new Uint8Array();
        const content = `${count} ${single.everyMs}`;
        took.ours += sign * (await cpuOf(async () => (body = await ask(engine, identity, content))));
        took.bare += sign * (await cpuOf(() => bareFetch(host, body)));
      }
      if (n < 0) continue;
      cpu.ours.push((took.ours * 1000) / (single.long - single.short));
      cpu.bare.push((took.bare * 1000) / (single.long - single.short));
    }
    say(`the same at 200 tokens a second, 7 pairs`);
    const slow = await pairs(`${paced.tokens} ${paced.everyMs}`, 7);
    const perToken = (times: { readonly few: readonly number[]; readonly many: readonly number[] }): number =>
      ((median(times.many) - median(times.few)) * 1000) / (long - short);
    const ours = perToken({ few: few.ours, many: many.ours });
    const bare = perToken({ few: few.bare, many: many.bare });
    const parsed = perToken({ few: few.parsed, many: many.parsed });
    return [
      // As tokens are streamed: one at a time.
      { ...time('adapter_cpu_us_a_token', cpu.ours), unit: 'us' },
      { ...time('bare_fetch_cpu_us_a_token', cpu.bare), unit: 'us' },
      ratio('adapter_to_bare_a_token', [median(cpu.ours)], [median(cpu.bare)], '< 1.2'),
      // Thousands at once, from an engine that takes no time: what is left is Node's HTTP and, with us, parsing.
      { ...time('adapter_us_a_token_at_once', [ours]), unit: 'us' },
      { ...time('bare_fetch_us_a_token_at_once', [bare]), unit: 'us' },
      { ...ratio('adapter_to_bare_at_once', [ours], [bare], ''), aim: null },
      // A bare fetch parses nothing; this one reads the lines, and no more.
      { ...ratio('adapter_to_parsing_at_once', [ours], [parsed], ''), aim: null },
      time('adapter_request_200_tokens_s', slow.ours),
      ratio('adapter_to_bare_a_request', slow.ours, slow.bare, '< 1.2'),
      // The worst there is: an engine that answers in no time. What is left are six questions for identity.
      time('adapter_request_instant', few.ours),
      time('bare_fetch_instant', few.bare),
    ];
  } finally {
    child.kill();
  }
}
