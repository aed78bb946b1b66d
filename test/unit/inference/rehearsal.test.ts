import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { ModelIdentity } from '../../../src/protocol/binding.ts';
import type { ChatMessage, ChatTurn, InferenceEngine } from '../../../src/server/inference/port.ts';
import { loadScript } from '../../../src/server/inference/rehearsal/script.ts';
import { startRehearsal } from '../../../src/server/inference/rehearsal/start.ts';
import { chatOptions, failureOf } from '../../fixtures/ollama-chat.ts';
import { leftOut } from '../../fixtures/left-out.ts';

let dir: string;
let engine: InferenceEngine;
let stop: () => Promise<void>;
const script = {
  name: 'sample',
  description: 'Two turns.',
  turns: [
    { thinking: 'hm', content: 'Looking.', toolCalls: [{ name: 'terminal', arguments: { command: 'true' } }] },
    { content: 'Nothing more.' },
  ],
  correction: [{ content: 'Corrected.' }],
};

beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), 'rehearsal-'));
  await writeFile(join(dir, 'sample.rehearsal.json'), JSON.stringify(script));
  await writeFile(join(dir, 'broken.rehearsal.json'), '{');
  ({ engine, stop } = await startRehearsal({ scriptsDirs: [dir], log: () => undefined }));
});
afterEach(async () => {
  await stop();
  await rm(dir, { recursive: true });
});

const say = (content: string): ChatMessage => ({ role: 'user', content });
const done: ChatMessage = { role: 'assistant', content: '', thinking: '', toolCalls: [] };
const chat = async (
  model: ModelIdentity,
  messages: readonly ChatMessage[],
  signal = new AbortController().signal,
  onEvent: () => void = () => undefined,
): Promise<ChatTurn> =>
  engine.chat(
    { model: model.tag, messages, tools: [], options: chatOptions, engineVersion: null },
    model,
    onEvent,
    signal,
  );

describe('the rehearsal engine', () => {
  test('says what it is: version, family, digest of the script', async () => {
    expect(engine.synthetic).toBe(true);
    expect((await engine.health()).version).toContain('rehearsal');
    const model = await engine.identity('sample');
    expect(model.tag).toBe('rehearsal/sample');
    expect(model.family).toBe('rehearsal');
    expect(model.digest).toBe(createHash('sha256').update(JSON.stringify(script)).digest('hex'));
    expect((await engine.inventory()).map((m) => m.tag)).toEqual(['rehearsal/walkthrough', 'rehearsal/sample']);
  });

  test('plays the turn that the number of assistant messages says, then finishes', async () => {
    const model = await engine.identity('rehearsal/sample');
    const first = await chat(model, [say('go')]);
    expect(first).toMatchObject({ content: 'Looking.', thinking: 'hm', doneReason: 'stop' });
    expect(first.toolCalls).toMatchObject([{ name: 'terminal', arguments: { command: 'true' } }]);
    expect(await chat(model, [say('go'), done, say('more')])).toMatchObject({
      content: 'Nothing more.',
      toolCalls: [],
    });
    expect((await chat(model, [say('go'), done, done])).toolCalls[0]?.name).toBe('finish');
  });

  test('a correction plays its own turns', async () => {
    const model = await engine.identity('sample');
    expect((await chat(model, [say('A reviewer rejected an earlier attempt.')])).content).toBe('Corrected.');
  });

  test('a changed script is a changed digest, noticed before anything is sent', async () => {
    const model = await engine.identity('sample');
    await writeFile(join(dir, 'sample.rehearsal.json'), JSON.stringify({ ...script, description: 'Other.' }));
    expect((await failureOf(chat(model, [say('go')]))).code).toBe('digest_changed');
  });

  test('a script is found by its absolute path', async () => {
    const path = join(dir, 'Elsewhere.json');
    await writeFile(path, JSON.stringify({ name: 'elsewhere', turns: [{ content: 'From a path.' }] }));
    const model = await engine.identity(path);
    expect(model.tag).toBe(path);
    expect((await chat(model, [say('go')])).content).toBe('From a path.');
    await expect(engine.identity(join(dir, 'missing.json'))).rejects.toMatchObject({ code: 'ModelNotFound' });
    await expect(engine.identity('missing')).rejects.toMatchObject({ code: 'ModelNotFound' });
  });

  test('a held turn trickles until its file exists', async () => {
    const hold = join(dir, 'go-on');
    const path = join(dir, 'held.json');
    await writeFile(path, JSON.stringify({ name: 'held', turns: [{ holdUntilFile: hold, content: 'Released.' }] }));
    const model = await engine.identity(path);
    let released: Promise<void> | undefined;
    const turn = await chat(model, [say('go')], undefined, () => {
      released ??= writeFile(hold, '');
    });
    await released;
    expect(turn.content).toBe('Released.');
    expect(turn.thinking).toContain('…');
  });

  test('an abort ends a held turn at once, and the engine is seen idle', async () => {
    const path = join(dir, 'held.json');
    await writeFile(path, JSON.stringify({ name: 'held', turns: [{ holdUntilFile: join(dir, 'never') }] }));
    const model = await engine.identity(path);
    const abort = new AbortController();
    const failure = await failureOf(
      chat(model, [say('go')], abort.signal, () => {
        abort.abort(new Error('enough'));
      }),
    );
    expect(failure.kind).toBe('cancelled');
    expect(await engine.idle(model.tag)).toBe('idle');
  });

  test.each([
    ['cut', 'transport', 'stream_cut'],
    ['error-in-200', 'transport', 'error_in_stream'],
    ['no-done', 'transport', 'no_done'],
    ['tool-parse-error', 'model', 'tool_call_unparsable'],
    ['out-of-memory', 'resource', 'out_of_memory'],
    ['queue-full', 'transport', 'queue_full'],
  ])('fault %s', async (fault, kind, code) => {
    const path = join(dir, 'fault.json');
    await writeFile(path, JSON.stringify({ name: 'fault', turns: [{ fault, content: 'some' }] }));
    const model = await engine.identity(path);
    const failure = await failureOf(chat(model, [say('go')]));
    expect({ kind: failure.kind, code: failure.code }).toEqual({ kind, code });
  });
});

describe.skipIf(process.platform === 'win32')(`a script of a hostile repository${leftOut.posix}`, () => {
  test('a pipe of that name holds nothing up', async () => {
    const pipe = join(dir, 'pipe.json');
    await promisify(execFile)('mkfifo', [pipe]);
    await expect(loadScript(pipe)).rejects.toThrow('is not a file');
  });

  test('a link to a device, and more bytes than a script has, are not read', async () => {
    const endless = join(dir, 'endless.json');
    await symlink('/dev/zero', endless);
    await expect(loadScript(endless)).rejects.toThrow('is not a file');
    const long = join(dir, 'long.json');
    await writeFile(long, Buffer.alloc(1_048_577, 32));
    await expect(loadScript(long)).rejects.toThrow('is longer than');
    await writeFile(long, JSON.stringify(script).padEnd(1_048_576));
    await expect(loadScript(long)).resolves.toMatchObject({ script: { name: 'sample' }, bytes: 1_048_576 });
  });
});
