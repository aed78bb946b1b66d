import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { dist } from '../../scripts/lib/root.ts';
import type { KernelConnection } from '../../src/client/kernel-connection.ts';
import type { ContractDigest } from '../../src/protocol/primitives.ts';
import type { SessionView } from '../../src/protocol/views.ts';
import { defaultSwitches } from '../../src/server/agent/defaults.ts';
import { createToolbox } from '../../src/server/agent/toolbox.ts';
import { unlimited } from '../../src/server/scope/scope-guard.ts';
import { createHttpClient } from '../../src/server/inference/http.ts';
import { parseHost } from '../../src/server/inference/host.ts';
import type { ChatMessage } from '../../src/server/inference/port.ts';
import { openStore } from '../../src/server/store/open-store.ts';
import { peerModel } from '../fixtures/bad-peers/ollama-peer.ts';
import { exampleRepo } from '../fixtures/example-repo.ts';
import { frozenContract } from '../fixtures/frozen-contract.ts';
import { prepareContract, sessionAt, settled } from '../fixtures/journey.ts';
import { startTestKernel } from '../fixtures/kernel.ts';
import { qwenTokens } from '../fixtures/qwen.ts';
import { bytesOf, pathOf, sandboxBench, type SandboxBench } from '../fixtures/sandbox.ts';
import { median, ratio, time, timed, type Figure, type Suite } from './figures.ts';
import { adapterOverhead } from './inference/adapter.ts';
import { admittedFigures } from './inference/admitted.ts';
import {
  calls,
  readBody,
  startScriptedEngine,
  type ScriptedCall,
  type ScriptedEngine,
  type SeenRequest,
} from './inference/scripted-engine.ts';

/** Input tokens of nine requests on the same task in the reports that the project starts from. */
const reportedTokens = 56_099;
/** Turns of each kind in the conversation that measures turnaround. */
const turnaroundSamples = 24;

const file = 'src/usage.py';
const unit = 'python3 -m unittest -v tests.test_timestamp';
const rest = 'python3 -m unittest -v tests.test_usage';
const before = '    return datetime.fromisoformat(text).timestamp()';
const wrong = '    return datetime.fromisoformat(text).replace(tzinfo=timezone.utc).timestamp()';
const right =
  '    moment = datetime.fromisoformat(text)\n    if moment.tzinfo is None:\n        moment = moment.replace(tzinfo=timezone.utc)\n    return moment.timestamp()';

/** Nine requests as a small model takes them: looks, checks, a wrong edit, looks again, the right one, checks, the end. */
const nine: readonly ScriptedCall[] = [
  calls.view(file),
  calls.run(unit),
  calls.replace(file, before, wrong),
  calls.run(unit),
  calls.view(file, [14, 20]),
  calls.replace(file, wrong, right),
  calls.run(unit),
  calls.run(rest),
  calls.finish,
];

interface Played {
  readonly seen: readonly SeenRequest[];
  readonly view: SessionView;
}

async function play(
  kernel: KernelConnection,
  engine: ScriptedEngine,
  digest: ContractDigest,
  script: readonly ScriptedCall[],
  beforeAnswer: () => Promise<void> = async () => {},
): Promise<Played> {
  const seen = engine.play(script, beforeAnswer);
  // Told, not polled: a question every moment would be part of what is measured.
  const over = Promise.withResolvers<void>();
  const end = kernel.on('evidence/events', ({ events }) => {
    if (events.some((event) => event.type === 'attempt.settled')) over.resolve();
  });
  await kernel.call('evidence/subscribe', { lastSeenSeq: Number.MAX_SAFE_INTEGER });
  const { session } = await kernel.call('session/start', { digest, engine: 'ollama', model: peerModel });
  await over.promise;
  end();
  const view = await sessionAt(kernel, session.id, 'settled', settled, 120_000);
  if (seen.length !== script.length)
    throw new Error(`${seen.length} of ${script.length} requests: ${JSON.stringify(view.attempts[0]?.outcome)}`);
  return { seen, view };
}

/** The example's contract with a check that does nothing, and room for many requests. */
async function turnaroundContract(contract: string): Promise<string> {
  const text = await readFile(contract, 'utf8');
  const other = path.join(path.dirname(contract), 'turnaround.contract.jsonc');
  await writeFile(
    other,
    text
      .replace('"acceptance": [', '"acceptance": [{ "id": "noop", "argv": ["true"], "baseline": "pass" },')
      .replace('"requestsPerAttempt": 12', '"requestsPerAttempt": 80'),
  );
  return other;
}

/** What a turn is made of, to be measured while the Kernel waits for an answer: each sample in milliseconds. */
interface Parts {
  readonly identity: number[];
  readonly durable: number[];
  readonly read: number[];
  readonly noop: number[];
  sample(): Promise<void>;
  close(): Promise<void>;
}

async function measureParts(
  bench: SandboxBench,
  host: string,
  sizes: { readonly request: number; readonly response: number; readonly events: number },
): Promise<Parts> {
  const text = '"""Usage."""\n' + 'value = 1\n'.repeat(100);
  const sandbox = await bench.provision({
    files: [{ path: pathOf(file), mode: 0o644, bytes: bytesOf(text) }],
    readable: [pathOf(file)],
    commands: [{ id: 'noop', argv: ['true'], timeoutS: 15, captureKiB: 64, env: {} }],
  });
  const contract = frozenContract({ readable: [file], checks: [{ id: 'noop', argv: ['true'] }] });
  const toolbox = createToolbox(contract, defaultSwitches, sandbox, unlimited);
  const http = createHttpClient(parseHost(host));
  const home = await mkdtemp(path.join(tmpdir(), 'bench-inference-'));
  const store = openStore({ home, now: Date.now });
  const never = new AbortController().signal;
  let version = 0;
  const parts: Parts = {
    identity: [],
    durable: [],
    read: [],
    noop: [],
    async sample() {
      // Once after the answer, once before the next request.
      const once = (): Promise<unknown> =>
        Promise.all(['/api/version', '/api/tags', '/api/ps'].map((p) => http.fetch('GET', p, null, 5000)));
      parts.identity.push((await timed(once)) + (await timed(once)));
      parts.durable.push(
        await timed(async () => {
          // Other bytes each time: what is there already would not be written again.
          await store.artefacts.put(Buffer.alloc(sizes.request, `request ${version}`), 'bench');
          await store.artefacts.put(Buffer.alloc(sizes.response, `response ${version}`), 'bench');
          for (let i = 0; i < sizes.events; i += 1) {
            store.append('bench', version, [{ type: 'bench', data: { version, text: 'x'.repeat(400) } }]);
            version += 1;
          }
        }),
      );
      parts.read.push(
        await timed(() =>
          toolbox.act({ tool: 'file_editor', command: 'view', path: `/workspace/${file}`, range: null }, never),
        ),
      );
      parts.noop.push(await timed(() => toolbox.act({ tool: 'terminal', command: 'true' }, never)));
    },
    async close() {
      store.close();
      await rm(home, { recursive: true, force: true });
    },
  };
  return parts;
}

/** Events that the record gains from one request to the next, and the bytes of an exchange. */
async function recordOfTurn(
  kernel: KernelConnection,
  { view, seen }: Played,
): Promise<{ request: number; response: number; events: number }> {
  const { events } = await kernel.call('session/events', { session: view.id, limit: 1000 });
  const counted = events.filter((e) => e.type === 'attempt.request').length;
  const first = events.findIndex((e) => e.type === 'attempt.request');
  const last = events.findLastIndex((e) => e.type === 'attempt.request');
  const turn = events.find((e) => e.type === 'attempt.turn')?.data as { response: { size: number } } | undefined;
  return {
    events: Math.round((last - first) / (counted - 1)),
    request: median(seen.map((s) => Buffer.byteLength(s.body))),
    response: turn?.response.size ?? 0,
  };
}

const count = (name: string, value: number, aim: string | null): Figure => ({
  name,
  value,
  unit: 'count',
  aim,
  samples: [value],
});

export const inference: Suite = {
  name: 'inference',
  async run(say) {
    const bench = await sandboxBench();
    const repo = await exampleRepo();
    const engine = await startScriptedEngine();
    const kernel = await startTestKernel({
      entry: path.join(dist, 'kernel.cjs'),
      environment: { ESCROW_INFERENCE_HOST: engine.host },
    });
    try {
      const figures: Figure[] = [];
      say('a conversation of nine requests on utc-timestamp, tokens by Qwen 3');
      const digest = await prepareContract(kernel.kernel, repo.contract);
      const conversation = await play(kernel.kernel, engine, digest, nine);
      if (conversation.view.attempts[0]?.outcome?.kind !== 'candidate') throw new Error('the conversation went astray');
      const first = JSON.parse(conversation.seen[0]?.body ?? '') as { messages: unknown; tools: unknown };
      const tools = qwenTokens(JSON.stringify(first.tools));
      if (process.env['BENCH_DUMP'] !== undefined)
        await writeFile(process.env['BENCH_DUMP'], conversation.seen.at(-1)?.body ?? '');
      const sum = conversation.seen.reduce((total, { promptTokens }) => total + promptTokens, 0);
      figures.push(
        // As the peers were measured: the JSON of messages and tools.
        count('first_request_tokens', qwenTokens(JSON.stringify(first.messages)) + tools, '< 901'),
        count('first_request_tokens_of_tools', tools, null),
        count('first_request_tokens_as_rendered', conversation.seen[0]?.promptTokens ?? Number.NaN, null),
        count('prompt_tokens_of_nine', sum, null),
        { ...count('prompt_tokens_of_nine_to_reported', sum / reportedTokens, '< 0.35'), unit: 'ratio' },
      );

      say('turns that guards admit on that conversation');
      const { messages, tools: schemas } = readBody(conversation.seen.at(-1)?.body ?? '');
      figures.push(...admittedFigures(messages.slice(0, 2), turnsOf(messages.slice(2)), schemas));

      say(`turnaround of a read and of "true", ${turnaroundSamples} of each, and its parts`);
      const many = await prepareContract(kernel.kernel, await turnaroundContract(repo.contract));
      const script = Array.from({ length: turnaroundSamples }, (_, n) => [
        calls.view(file, [n + 1, n + 3]),
        calls.run('true'),
      ]).flat();
      const measured = await measureParts(bench, engine.host, await recordOfTurn(kernel.kernel, conversation));
      try {
        const long = [calls.view(file), ...script, calls.finish, calls.finish];
        // The parts of a turn are taken right before it, under the same load.
        const busy = await play(kernel.kernel, engine, many, long, () => measured.sample());
        figures.push(...turnaroundFigures(busy.seen, measured));
      } finally {
        await measured.close();
      }

      figures.push(...(await adapterOverhead(say)));
      return figures;
    } finally {
      await kernel.dispose();
      await engine.close();
      await bench.dispose();
      await repo.dispose();
    }
  },
};

/** From the end of an answer to the next request, against the parts that were taken right before that answer. */
function turnaroundFigures(seen: readonly SeenRequest[], parts: Parts): readonly Figure[] {
  const figures: Figure[] = [];
  for (const [name, kind, own] of [
    ['read', 0, parts.read],
    ['true', 1, parts.noop],
  ] as const) {
    const took: number[] = [];
    const sums: number[] = [];
    for (let n = 0; n < turnaroundSamples; n += 1) {
      const at = 1 + n * 2 + kind;
      took.push((seen[at + 1]?.arrivedAt ?? Number.NaN) - (seen[at]?.answeredAt ?? Number.NaN));
      sums.push((parts.identity[at] ?? Number.NaN) + (parts.durable[at] ?? Number.NaN) + (own[at] ?? Number.NaN));
    }
    figures.push(
      time(`turnaround_${name}`, took),
      time(`turnaround_${name}_parts`, sums),
      ratio(`turnaround_${name}_to_parts`, took, sums, '< 1.5'),
    );
  }
  return [
    ...figures,
    time('part_identity_twice', parts.identity),
    time('part_durable', parts.durable),
    time('part_read', parts.read),
    time('part_true', parts.noop),
  ];
}

/** The conversation after its first messages, a turn at a time: an answer of the model and what it was told. */
function turnsOf(messages: readonly ChatMessage[]): readonly (readonly ChatMessage[])[] {
  const turns: ChatMessage[][] = [];
  for (const message of messages) {
    if (message.role === 'assistant') turns.push([message]);
    else turns.at(-1)?.push(message);
  }
  return turns;
}
