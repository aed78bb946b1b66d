import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { afterEach, describe, expect, test } from 'vitest';
import { EscrowError } from '../../../src/protocol/errors.ts';
import { createOllamaEngine } from '../../../src/server/inference/ollama.ts';
import { startAlias } from '../../fixtures/bad-peers/ollama-alias.ts';
import { startBusy } from '../../fixtures/bad-peers/ollama-busy.ts';
import { startCloudResponse } from '../../fixtures/bad-peers/ollama-cloud-response.ts';
import { startCutStream } from '../../fixtures/bad-peers/ollama-cut-stream.ts';
import { startDigestChanged } from '../../fixtures/bad-peers/ollama-digest-changed.ts';
import { startEndlessDrip } from '../../fixtures/bad-peers/ollama-endless-drip.ts';
import { startErrorIn200 } from '../../fixtures/bad-peers/ollama-error-in-200.ts';
import { startGigabyteLine } from '../../fixtures/bad-peers/ollama-gigabyte-line.ts';
import { startInvalidUtf8 } from '../../fixtures/bad-peers/ollama-invalid-utf8.ts';
import { startNoDone } from '../../fixtures/bad-peers/ollama-no-done.ts';
import {
  callLine,
  honestLoaded,
  honestTag,
  lastLine,
  line,
  otherDigest,
  peerDigest,
  peerModel,
  startOllamaPeer,
  streaming,
} from '../../fixtures/bad-peers/ollama-peer.ts';
import type { OllamaPeer } from '../../fixtures/bad-peers/ollama-peer.ts';
import { startRedirect } from '../../fixtures/bad-peers/ollama-redirect.ts';
import { startSilent } from '../../fixtures/bad-peers/ollama-silent.ts';
import { startSmallerContext } from '../../fixtures/bad-peers/ollama-smaller-context.ts';
import { chatOnce, chatOptions, engineOn, failureOf } from '../../fixtures/ollama-chat.ts';

const open: OllamaPeer[] = [];
const use = async (start: Promise<OllamaPeer>): Promise<OllamaPeer> => {
  const peer = await start;
  open.push(peer);
  return peer;
};
afterEach(async () => {
  await Promise.all(open.splice(0).map(async (peer) => peer.close()));
});

describe('an honest engine', () => {
  test('gives a turn with a verified receipt', async () => {
    const peer = await use(startOllamaPeer());
    const turn = await chatOnce(engineOn(peer.host));
    expect(turn.content).toBe('hello');
    expect(turn.receipt).toMatchObject({
      modelDigestBefore: peerDigest,
      modelDigestAfter: peerDigest,
      contextLoaded: 8192,
      gpuShare: 0.5,
      loadedBytes: 3_000_000_000,
      promptTokens: 120,
      outputTokens: 7,
      doneReason: 'stop',
      totalMs: 5,
      loadMs: 1,
      verified: true,
      findings: [],
    });
    expect(Buffer.from(turn.rawResponse).toString()).toContain('"done":true');
    expect(Buffer.from(turn.rawRequest).toString()).toBe(peer.chats[0]);
  });

  test('is asked with everything explicit, the same load-time options each time', async () => {
    const peer = await use(startOllamaPeer());
    const engine = engineOn(peer.host);
    await chatOnce(engine);
    await chatOnce(engine);
    const bodies = peer.chats.map((body) => JSON.parse(body));
    expect(bodies[0]).toMatchObject({
      model: peerModel,
      stream: true,
      think: false,
      truncate: false,
      shift: false,
      keep_alive: '5m',
      options: { num_ctx: 8192, num_predict: 256, temperature: 0, seed: 1 },
    });
    expect(bodies[1]).toEqual(bodies[0]);
  });

  test('drafts are asked for where they are bound, and not named where they are off', async () => {
    const peer = await use(startOllamaPeer());
    const engine = engineOn(peer.host);
    await chatOnce(engine);
    await chatOnce(engine, { options: { draftNumPredict: 4 } });
    const options = peer.chats.map((body) => (JSON.parse(body) as { options: object }).options);
    expect(options[0]).not.toHaveProperty('draft_num_predict');
    expect(options[1]).toMatchObject({ draft_num_predict: 4 });
  });

  test('what is not wrong but worth knowing is a note: partly on the CPU, a larger context than asked', async () => {
    const peer = await use(
      startOllamaPeer({ ps: (chats) => (chats === 0 ? [] : [{ ...honestLoaded, context_length: 16_384 }]) }),
    );
    expect((await chatOnce(engineOn(peer.host))).receipt).toMatchObject({
      verified: true,
      notes: ['partly_on_cpu', 'context_larger'],
    });
  });

  test('a connection for small questions that was closed meanwhile is no failure; a POST is never sent twice', async () => {
    const peer = await use(startOllamaPeer());
    const engine = engineOn(peer.host);
    for (let n = 0; n < 3; n += 1) {
      await chatOnce(engine);
      peer.dropIdle();
    }
    expect(peer.chats).toHaveLength(3);
  });

  test('calls come from any chunk, in order, equal ones too; thinking is separated', async () => {
    const peer = await use(
      startOllamaPeer({
        chat: (response) => {
          streaming(response).end(
            line({ thinking: 'first ' }) +
              callLine('terminal', { command: 'a' }, 'x1') +
              line({ content: 'stray</think>said' }) +
              callLine('terminal', { command: 'a' }) +
              lastLine.replace(
                '"content":""',
                '"content":"","tool_calls":[{"function":{"name":"finish","arguments":"{}"}}]',
              ),
          );
        },
      }),
    );
    const turn = await chatOnce(engineOn(peer.host));
    expect(turn.toolCalls).toEqual([
      { id: 'x1', name: 'terminal', arguments: { command: 'a' } },
      { id: null, name: 'terminal', arguments: { command: 'a' } },
      { id: null, name: 'finish', arguments: '{}' },
    ]);
    expect(turn.content).toBe('said');
    expect(turn.thinking).toBe('first \nstray');
  });

  test('the same bytes in one-byte pieces are the same turn', async () => {
    const bytes = Buffer.from(line({ content: 'größer €' }) + lastLine);
    const peer = await use(
      startOllamaPeer({
        chat: async (response) => {
          streaming(response);
          for (const byte of bytes) await new Promise((done) => response.write(Buffer.from([byte]), done));
          response.end();
        },
      }),
    );
    expect((await chatOnce(engineOn(peer.host))).content).toBe('größer €');
  });

  test('an identical copy under another name is the same model', async () => {
    const peer = await use(
      startOllamaPeer({ ps: (chats) => (chats === 0 ? [] : [{ ...honestLoaded, name: 'copy:latest' }]) }),
    );
    expect((await chatOnce(engineOn(peer.host))).receipt.verified).toBe(true);
  });
});

describe('a bad engine ends with its own name', () => {
  const cases: readonly (readonly [string, () => Promise<OllamaPeer>, string, string])[] = [
    ['cut stream', startCutStream, 'transport', 'stream_cut'],
    ['error in a 200', startErrorIn200, 'transport', 'engine_eof'],
    ['no done', startNoDone, 'transport', 'no_done'],
    ['digest changed', startDigestChanged, 'identity', 'digest_changed'],
    ['smaller context', startSmallerContext, 'identity', 'context_smaller'],
    ['alias with the same weights', startAlias, 'identity', 'alias_loaded'],
    ['cloud response', startCloudResponse, 'unsupported', 'cloud_response'],
    ['redirect', startRedirect, 'transport', 'redirect_refused'],
    ['gigabyte line', startGigabyteLine, 'transport', 'line_too_long'],
    ['invalid UTF-8', startInvalidUtf8, 'transport', 'invalid_utf8'],
    ['503', startBusy, 'transport', 'queue_full'],
  ];
  test.each(cases)('%s', async (_name, start, kind, code) => {
    const peer = await use(start());
    const failure = await failureOf(chatOnce(engineOn(peer.host)));
    expect({ kind: failure.kind, code: failure.code }).toEqual({ kind, code });
    expect(failure.receipt?.verified).toBe(false);
    expect(failure.receipt?.findings).toContain(code);
    expect(peer.chats).toHaveLength(1);
  });

  test('a redirect is not followed', async () => {
    const peer = await use(startRedirect());
    await failureOf(chatOnce(engineOn(peer.host)));
    expect(peer.paths.at(-1)).toBe('/api/chat');
  });

  test('a drip of bytes without a line counts as stalled', async () => {
    const peer = await use(startEndlessDrip());
    const failure = await failureOf(chatOnce(engineOn(peer.host, { stallMs: 80 })));
    expect(failure.code).toBe('stalled');
  });

  test('what arrived before a failure is kept as evidence', async () => {
    const peer = await use(startCutStream());
    const failure = await failureOf(chatOnce(engineOn(peer.host)));
    expect(Buffer.from(failure.rawResponse ?? []).toString()).toContain('half');
    expect(failure.receipt?.responseDigest).not.toBeNull();
  });

  test.each([
    ['blank line', '\n', 'malformed_line'],
    ['not JSON', 'hello\n', 'malformed_line'],
    ['unknown shape', '{"model":"qwen3:4b","done":false}\n', 'unknown_shape'],
    ['another model', line({ content: 'x' }).replace(peerModel, 'llama3:8b'), 'model_substituted'],
    ['lines after the last', lastLine + line({ content: 'more' }), 'data_after_done'],
    ['only loaded', line({}, { done: true, done_reason: 'load' }), 'not_generated'],
    ['deep arguments', callLine('terminal', JSON.parse('['.repeat(200) + ']'.repeat(200))), 'arguments_too_deep'],
    [
      'error as JSON in a string',
      '{"error":"{\\"error\\":{\\"message\\":\\"request exceeds the available context size\\",\\"type\\":\\"exceed_context_size_error\\"}}"}\n',
      'context_exceeded',
    ],
  ])('%s', async (_name, body, code) => {
    const peer = await use(startOllamaPeer({ chat: (response) => void streaming(response).end(body) }));
    expect((await failureOf(chatOnce(engineOn(peer.host)))).code).toBe(code);
  });

  test('not listed as loaded afterwards: nothing is proven', async () => {
    const peer = await use(startOllamaPeer({ ps: () => [] }));
    expect((await failureOf(chatOnce(engineOn(peer.host)))).code).toBe('not_loaded');
  });

  test('a runner of the tag with an old digest is noticed before anything is sent', async () => {
    const peer = await use(startOllamaPeer({ ps: () => [{ ...honestLoaded, digest: otherDigest }] }));
    expect((await failureOf(chatOnce(engineOn(peer.host)))).code).toBe('loaded_digest_differs');
    expect(peer.chats).toHaveLength(0);
  });

  test('a tag that was replaced since the binding is noticed before anything is sent', async () => {
    const peer = await use(startOllamaPeer());
    const engine = engineOn(peer.host);
    const bound = { ...(await engine.identity(peerModel)), digest: otherDigest };
    expect((await failureOf(chatOnce(engine, { identity: bound }))).code).toBe('digest_changed');
    expect(peer.chats).toHaveLength(0);
  });

  test('nobody listens', async () => {
    const peer = await startOllamaPeer();
    const engine = engineOn(peer.host);
    const identity = await engine.identity(peerModel);
    await peer.close();
    const failure = await failureOf(chatOnce(engine, { identity }));
    expect({ kind: failure.kind, code: failure.code }).toEqual({ kind: 'transport', code: 'engine_not_reachable' });
    expect(await engine.health()).toMatchObject({ state: 'unavailable', code: 'engine_not_reachable', version: null });
    await expect(engine.identity(peerModel)).rejects.toMatchObject({ code: 'InferenceUnavailable' });
  });
});

describe('loading and cancelling', () => {
  test('an engine that loads is seen alive, and bounded all the same', async () => {
    const peer = await use(startSilent());
    const events: string[] = [];
    // A second goes by with each sign of life.
    const engine = engineOn(peer.host, { loadMs: 3000, probeMs: 10, monotonic: () => events.length * 1000 });
    const failure = await failureOf(chatOnce(engine, { onEvent: (event) => events.push(event.kind) }));
    expect(failure.code).toBe('load_timeout');
    expect(events).toEqual(['loading', 'loading', 'loading']);
  });

  test('a cancel in the middle of a turn returns at once and closes the connection', async () => {
    const closed = Promise.withResolvers<void>();
    const peer = await use(
      startOllamaPeer({
        chat: (response) => {
          response.on('close', () => {
            closed.resolve();
          });
          streaming(response).write(line({ content: 'begun' }));
        },
      }),
    );
    const abort = new AbortController();
    const chat = failureOf(
      chatOnce(engineOn(peer.host), {
        signal: abort.signal,
        onEvent: () => {
          abort.abort(new Error('cancelled by a person'));
        },
      }),
    );
    const failure = await chat;
    expect({ kind: failure.kind, code: failure.code }).toEqual({ kind: 'cancelled', code: 'cancelled' });
    await closed.promise;
  });
});

describe('what is refused before anything is sent', () => {
  test.each(['gpt-oss:120b-cloud', 'qwen3:cloud', 'Some-Cloud', 'library/x:30B-CLOUD'])(
    'cloud name %s',
    async (tag) => {
      const peer = await use(startOllamaPeer());
      const engine = engineOn(peer.host);
      const identity = await engine.identity(peerModel);
      peer.paths.length = 0;
      await expect(engine.identity(tag)).rejects.toMatchObject({ code: 'CloudModelRefused' });
      const failure = await failureOf(
        engine.chat(
          { model: tag, messages: [], tools: [], options: chatOptions, engineVersion: null },
          identity,
          () => undefined,
          new AbortController().signal,
        ),
      );
      expect(failure.code).toBe('cloud_name');
      expect(peer.paths).toEqual([]);
    },
  );

  test('a tag whose entry names a remote host', async () => {
    const peer = await use(startOllamaPeer({ tags: () => [{ ...honestTag, remote_host: 'https://example.invalid' }] }));
    const engine = engineOn(peer.host);
    await expect(engine.identity(peerModel)).rejects.toMatchObject({ code: 'CloudModelRefused' });
    expect((await engine.inventory())[0]?.refused).toBe('cloud');
  });

  test('an engine that is too old', async () => {
    const peer = await use(startOllamaPeer({ version: '0.29.9' }));
    await expect(engineOn(peer.host).identity(peerModel)).rejects.toMatchObject({ code: 'InferenceTooOld' });
    expect(await engineOn(peer.host).health()).toMatchObject({ state: 'degraded', code: 'engine_too_old' });
  });

  test('a model that is not there: what is there is listed', async () => {
    const peer = await use(startOllamaPeer());
    const error = await engineOn(peer.host)
      .identity('llama3')
      .catch((e: unknown) => e);
    expect(EscrowError.is(error, 'ModelNotFound') && error.details['installed']).toEqual([peerModel]);
  });

  test('a schema keyword that the engine would drop', async () => {
    const peer = await use(startOllamaPeer());
    const engine = engineOn(peer.host);
    const identity = await engine.identity(peerModel);
    const failure = await failureOf(
      engine.chat(
        {
          model: peerModel,
          messages: [],
          tools: [
            {
              name: 't',
              description: '',
              parameters: { type: 'object', properties: { n: { type: 'integer', minimum: 0 } } },
            },
          ],
          options: chatOptions,
          engineVersion: null,
        },
        identity,
        () => undefined,
        new AbortController().signal,
      ),
    );
    expect(failure.message).toContain('t.n.minimum');
    expect(peer.chats).toHaveLength(0);
  });

  test.each([
    'http://192.0.2.1:11434',
    'https://example.invalid',
    'file:///x',
    'http://user:pw@127.0.0.1',
    '127.0.0.1/path',
  ])('host %s', (host) => {
    expect(() =>
      createOllamaEngine({ host, kind: 'ollama', now: () => 0, monotonic: () => 0, log: () => undefined }),
    ).toThrow(EscrowError);
  });

  test('proxy variables change nothing', async () => {
    const proxy = await use(startOllamaPeer());
    const peer = await use(startOllamaPeer());
    // Node reads these at its start, hence a process of its own. The plain request first: there they do have an effect.
    const script = `
      import { request } from 'node:http';
      import { chatOnce, engineOn } from '${new URL('../../fixtures/ollama-chat.ts', import.meta.url).href}';
      await new Promise((done) => request('${peer.host}/plain', (r) => { r.resume(); r.on('end', done); }).end());
      console.log((await chatOnce(engineOn('${peer.host}'))).content);`;
    const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '-e', script], {
      env: { HTTP_PROXY: proxy.host, http_proxy: proxy.host, NODE_USE_ENV_PROXY: '1' },
    });
    expect(stdout.trim()).toBe('hello');
    expect(proxy.paths).toEqual([`${peer.host}/plain`]);
  });
});

describe('after a request that was given up', () => {
  /** A runner that stays as it is, whatever happens to requests: as where none of them ever reached it. */
  const unmoved = (first: 'lost' | 'begun'): Promise<OllamaPeer> => {
    let chats = 0;
    return startOllamaPeer({
      ps: () => [{ ...honestLoaded, expires_at: '2030-01-01T00:00:00Z' }],
      chat: (response) => {
        chats += 1;
        if (chats > 1) {
          response.end(`${line({ content: 'hello' })}${lastLine}`);
          return;
        }
        if (first === 'begun') response.write(line({ content: 'it begins' }), () => response.destroy());
        else response.destroy();
      },
    });
  };

  test('the next one is sent where nothing of an answer had come: it may never have arrived, and nothing will tell', async () => {
    const peer = await use(unmoved('lost'));
    const engine = engineOn(peer.host, { idleMs: 100 });
    expect((await failureOf(chatOnce(engine))).kind).toBe('transport');
    const turn = await chatOnce(engine);
    expect(turn.content).toBe('hello');
    expect(turn.receipt.notes).toContain('idle_unknown');
    expect((await chatOnce(engine)).receipt.notes).not.toContain('idle_unknown');
  });

  test('the next one is not sent where its answer had begun (control)', async () => {
    const peer = await use(unmoved('begun'));
    const engine = engineOn(peer.host, { idleMs: 100 });
    expect((await failureOf(chatOnce(engine))).code).toBe('stream_cut');
    expect((await failureOf(chatOnce(engine))).code).toBe('engine_busy');
  });

  test('what was given up before it was sent is waited for by nobody', async () => {
    const abort = new AbortController();
    const peer = await use(
      startOllamaPeer({
        ps: () => {
          abort.abort(new Error('enough'));
          return [{ ...honestLoaded, expires_at: '2030-01-01T00:00:00Z' }];
        },
      }),
    );
    const engine = engineOn(peer.host, { idleMs: 100 });
    const identity = await engine.identity(peerModel);
    expect((await failureOf(chatOnce(engine, { identity, signal: abort.signal }))).kind).toBe('cancelled');
    const turn = await chatOnce(engine, { identity });
    expect(turn.receipt.notes).not.toContain('idle_unknown');
  });
});
