import { access } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { setTimeout as wait } from 'node:timers/promises';
import * as z from 'zod';
import { sha256 } from '../../../protocol/hash.ts';
import { canonicalTag } from '../cloud.ts';
import { readAll } from '../http.ts';
import type { LoadedScript, Turn } from './script.ts';
import { findScripts, loadScript } from './script.ts';
import { finishTurn, walkthroughTurn } from './walkthrough.ts';

/** The wire of a supported Ollama, spoken by a script; the version says so. */
export const rehearsalVersion = '0.30.0-rehearsal';
/** Names the built-in walk: it has no file, so its digest is of its name and version. */
const walkthroughTag = 'rehearsal/walkthrough';
const walkthroughDigest = sha256('escrow rehearsal walkthrough v1');
const advertisedContext = 262_144;
/** A correction's words come under this heading (agent/prompt.ts; a test holds the two together). */
export const correctionMark = 'A reviewer rejected an earlier attempt';

const ChatBody = z.looseObject({
  model: z.string(),
  messages: z.array(z.looseObject({ role: z.string(), content: z.string().default('') })).max(10_000),
  tools: z.array(z.unknown()).default([]),
  options: z.looseObject({ num_ctx: z.number().int(), num_predict: z.number().int() }),
});

export interface RehearsalServer {
  readonly host: string;
  /** Makes a script file known under its absolute path. Throws where it cannot be read. */
  addFile(path: string): Promise<void>;
  close(): Promise<void>;
}

export interface RehearsalServerOptions {
  readonly scriptsDirs: readonly string[];
  readonly log: (
    level: 'debug' | 'info' | 'warn' | 'error',
    message: string,
    data?: Readonly<Record<string, unknown>>,
  ) => void;
}

interface Model {
  readonly tag: string;
  readonly digest: string;
  readonly size: number;
  readonly description: string;
  readonly script: LoadedScript | null;
}

/** A real HTTP server on a random loopback port that speaks Ollama's wire and plays scripts. */
export async function startRehearsalServer(options: RehearsalServerOptions): Promise<RehearsalServer> {
  const files = new Map<string, string>();
  /** Tag → context it was last loaded with, as `/api/ps` shows it. */
  const loaded = new Map<string, { digest: string; numCtx: number; size: number; expiresAt: string | null }>();
  const stopping = new AbortController();
  /** Chats being answered now. */
  let chats = 0;
  /** Told like Ollama's: set when the last chat is over, another at each look while the first one runs. */
  let looks = 0;
  const inTenMinutes = (): string => {
    looks += 1;
    return new Date(Date.now() + 600_000).toISOString().replace('Z', `${String(looks).padStart(6, '0')}Z`);
  };

  const models = async (): Promise<readonly Model[]> => {
    const scripts = new Map(
      await findScripts(options.scriptsDirs, (path, message) => {
        options.log('warn', 'rehearsal script not usable', { path, message });
      }),
    );
    for (const path of files.keys()) {
      try {
        scripts.set(path, await loadScript(path, path));
      } catch (error) {
        options.log('warn', 'rehearsal script not usable', { path, message: String(error) });
      }
    }
    return [
      {
        tag: walkthroughTag,
        digest: walkthroughDigest,
        size: 0,
        description: 'Walks through any contract without a change.',
        script: null,
      },
      ...[...scripts.values()].map((s) => ({
        tag: s.tag,
        digest: s.digest,
        size: s.bytes,
        description: s.script.description,
        script: s,
      })),
    ];
  };
  const find = async (name: string): Promise<Model | undefined> =>
    (await models()).find((m) => canonicalTag(m.tag) === canonicalTag(name));

  const route = async (request: IncomingMessage, response: ServerResponse, gone: AbortSignal): Promise<void> => {
    switch (`${request.method} ${request.url}`) {
      case 'GET /api/version':
        answer(response, 200, { version: rehearsalVersion });
        return;
      case 'GET /api/tags':
        answer(response, 200, {
          models: (await models()).map((m) => ({
            name: m.tag,
            model: m.tag,
            digest: m.digest,
            size: m.size,
            details,
            capabilities,
            context_length: advertisedContext,
            description: m.description,
          })),
        });
        return;
      case 'GET /api/ps':
        answer(response, 200, {
          models: [...loaded].map(([tag, l]) => ({
            name: tag,
            model: tag,
            digest: l.digest,
            size: l.size,
            size_vram: 0,
            context_length: l.numCtx,
            expires_at: l.expiresAt ?? inTenMinutes(),
            details,
          })),
        });
        return;
      case 'POST /api/show': {
        const body = z.looseObject({ model: z.string() }).parse(await readJson(request));
        const model = await find(body.model);
        if (model === undefined) answer(response, 404, { error: `model '${body.model}' not found` });
        else
          answer(response, 200, {
            modelfile: `# a rehearsal script, not a model\nFROM sha256-${model.digest}`,
            template: '',
            details,
            capabilities,
            model_info: { 'general.architecture': 'rehearsal', 'rehearsal.context_length': advertisedContext },
          });
        return;
      }
      case 'POST /api/chat': {
        const parsed = ChatBody.safeParse(await readJson(request));
        if (!parsed.success) {
          answer(response, 400, { error: 'the request has an unknown shape' });
          return;
        }
        const model = await find(parsed.data.model);
        if (model === undefined) {
          answer(response, 404, { error: `model '${parsed.data.model}' not found` });
          return;
        }
        chats += 1;
        try {
          await chat(model, parsed.data, response, gone);
        } finally {
          chats -= 1;
          if (chats === 0) for (const runner of loaded.values()) runner.expiresAt = inTenMinutes();
        }
        return;
      }
      default:
        answer(response, 404, { error: 'not found' });
    }
  };

  const chat = async (
    model: Model,
    body: z.infer<typeof ChatBody>,
    response: ServerResponse,
    gone: AbortSignal,
  ): Promise<void> => {
    const started = performance.now();
    // Four bytes a token is the usual ratio of byte-level tokenizers on code and English.
    const promptTokens = Math.ceil(Buffer.byteLength(JSON.stringify([body.messages, body.tools])) / 4);
    if (promptTokens >= body.options.num_ctx) {
      answer(response, 400, { error: 'input length exceeds the context length' });
      return;
    }
    const turn = pickTurn(model, body.messages);
    if (turn.delayMs !== undefined) await wait(turn.delayMs, undefined, { signal: gone });
    const expiresAt = loaded.get(model.tag)?.expiresAt ?? null;
    loaded.set(model.tag, { digest: model.digest, numCtx: body.options.num_ctx, size: model.size, expiresAt });
    if (turn.fault === 'queue-full') return answer(response, 503, { error: 'server busy, please try again' });
    if (turn.fault === 'out-of-memory') return answer(response, 500, { error: 'cudaMalloc failed: out of memory' });
    if (turn.fault === 'tool-parse-error')
      return answer(response, 500, {
        error: "error parsing tool call: raw='{\"command\": view}', err=invalid character 'v'",
      });

    response.writeHead(200, { 'content-type': 'application/x-ndjson' });
    let written = 0;
    const line = (value: Readonly<Record<string, unknown>>): void => {
      response.write(`${JSON.stringify({ model: body.model, created_at: new Date().toISOString(), ...value })}\n`);
    };
    const piece = (message: Readonly<Record<string, unknown>>): void => {
      written += Buffer.byteLength(JSON.stringify(message));
      line({ message: { role: 'assistant', content: '', ...message }, done: false });
    };
    await hold(turn, gone, () => {
      piece({ thinking: '… ' });
    });
    for (const text of pieces(turn.thinking ?? '')) piece({ thinking: text });
    if (turn.fault === 'cut') {
      piece({ content: 'The connection ends in the middle of a' });
      response.flushHeaders();
      await new Promise((resolve) => response.write('{"model":"', resolve));
      response.destroy();
      return undefined;
    }
    for (const text of pieces(turn.content ?? '')) piece({ content: text });
    if (turn.fault === 'error-in-200') {
      line({ error: 'an error was encountered while running the model' });
      response.end();
      return undefined;
    }
    const index = body.messages.length;
    for (const [n, call] of (turn.toolCalls ?? []).entries())
      piece({
        tool_calls: [{ id: `call_${index}_${n}`, function: { index: n, name: call.name, arguments: call.arguments } }],
      });
    if (turn.fault === 'no-done') {
      response.end();
      return undefined;
    }
    const elapsed = Math.round((performance.now() - started) * 1e6);
    line({
      message: { role: 'assistant', content: '' },
      done: true,
      done_reason: turn.fault === 'length' ? 'length' : 'stop',
      total_duration: elapsed,
      load_duration: 1,
      prompt_eval_count: promptTokens,
      prompt_eval_duration: 1,
      eval_count: Math.max(1, Math.ceil(written / 4)),
      eval_duration: elapsed,
    });
    response.end();
    return undefined;
  };

  const server = createServer((request, response) => {
    // The client's going away ends waits and holds at once; so does the server's own end.
    const client = new AbortController();
    response.once('close', () => {
      client.abort(new Error('the client went away'));
    });
    const gone = AbortSignal.any([client.signal, stopping.signal]);
    route(request, response, gone).catch((error: unknown) => {
      if (!gone.aborted) options.log('error', 'rehearsal request failed', { error: String(error) });
      if (!response.headersSent) answer(response, 400, { error: String(error) });
      else response.destroy();
    });
  });
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(0, '127.0.0.1', () => {
      server.off('error', reject);
      resolve();
    });
  });
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('the rehearsal server has no port');

  return {
    host: `http://127.0.0.1:${address.port}`,
    async addFile(path) {
      if (files.has(path)) return;
      const script = await loadScript(path, path);
      files.set(path, script.path);
    },
    async close() {
      stopping.abort(new Error('the rehearsal engine stops'));
      server.closeAllConnections();
      await new Promise<void>((resolve) => {
        server.close(() => {
          resolve();
        });
      });
    },
  };
}

const details = { family: 'rehearsal', parameter_size: 'script', quantization_level: 'none' };
const capabilities = ['completion', 'tools', 'thinking'];

function pickTurn(model: Model, messages: readonly { readonly role: string; readonly content: string }[]): Turn {
  const index = messages.filter((m) => m.role === 'assistant').length;
  if (model.script === null) return walkthroughTurn(index, messages);
  const { script } = model.script;
  const task = messages.find((m) => m.role === 'user')?.content ?? '';
  const turns = script.correction !== undefined && task.includes(correctionMark) ? script.correction : script.turns;
  return turns[index] ?? finishTurn('The rehearsal script has no more turns.');
}

function holdPath(turn: Turn): string | null {
  const named = turn.holdUntilFile;
  if (named === undefined) return null;
  return named.startsWith('$') ? (process.env[named.slice(1)] ?? null) : named;
}

/** A trickle of thinking every half second keeps the stream visibly alive; the file is looked for ten times as often. */
async function hold(turn: Turn, gone: AbortSignal, trickle: () => void): Promise<void> {
  const path = holdPath(turn);
  if (path === null) return;
  for (let n = 0; ; n += 1) {
    if (await exists(path)) return;
    if (n % 10 === 0) trickle();
    await wait(50, undefined, { signal: gone });
  }
}

async function exists(path: string): Promise<boolean> {
  try {
    await access(path);
    return true;
  } catch {
    return false;
  }
}

/** Pieces of about a token's size, so that the reader sees a stream. */
function pieces(text: string): readonly string[] {
  return text.match(/\s*\S{1,12}|\s+/gu) ?? [];
}

function answer(response: ServerResponse, status: number, value: unknown): void {
  const bytes = Buffer.from(JSON.stringify(value));
  response.writeHead(status, { 'content-type': 'application/json', 'content-length': String(bytes.length) });
  response.end(bytes);
}

async function readJson(request: IncomingMessage): Promise<unknown> {
  const bytes = await readAll(request, 33_554_432);
  return JSON.parse(Buffer.from(bytes).toString('utf8')) as unknown;
}
