import { describe, expect, test } from 'vitest';
import { agentTools, firstMessages, offeredTools, promptDigest } from '../../../src/server/agent/prompt.ts';
import { SandboxFault } from '../../../src/server/sandbox/port.ts';
import { startRehearsal } from '../../../src/server/inference/rehearsal/start.ts';
import { call, play, runOn, turn } from '../../fixtures/agent-run.ts';
import type { AgentRun } from '../../fixtures/agent-run.ts';
import { startUndeclaredTool } from '../../fixtures/bad-peers/ollama-undeclared-tool.ts';
import {
  callLine,
  honestLoaded,
  lastLine,
  peerModel,
  startOllamaPeer,
  streaming,
} from '../../fixtures/bad-peers/ollama-peer.ts';
import { frozenContract } from '../../fixtures/frozen-contract.ts';
import { MemorySandbox } from '../../fixtures/memory-sandbox.ts';
import { engineOn } from '../../fixtures/ollama-chat.ts';
import { qwenPrompt, qwenTokens } from '../../fixtures/qwen.ts';

const file = '/workspace/src/usage.py';
const unit = 'python3 -m unittest tests.test_usage';
const failing =
  'F\n====\nFAIL: test_one\n----\n    self.assertEqual(one(), 1)\nAssertionError: 0 != 1\n\nRan 1 test in 0.00';

/** A task whose check passes once the file says `return 1`. */
const task = (parts: Parameters<typeof frozenContract>[0] = {}) =>
  frozenContract({
    checks: [
      { id: 'unit', argv: unit.split(' ') },
      { id: 'hidden', kind: 'supplemental', argv: ['python3', 'acceptance/secret.py'] },
    ],
    ...parts,
  });
let runs = 0;
const box = (): MemorySandbox =>
  new MemorySandbox(
    { 'src/usage.py': 'def one():\n    return 0\n', 'tests/test_usage.py': 'import unittest\n' },
    {
      unit: (files) => {
        runs += 1;
        const ok = Buffer.from(files.get('src/usage.py') ?? [])
          .toString()
          .includes('return 1');
        return {
          end: { kind: 'exit', code: ok ? 0 : 1 },
          output: Buffer.from(ok ? `OK in 0.00${runs}s` : `${failing}${runs}s`),
        };
      },
    },
  );
const right = turn.replace(file, 'return 0', 'return 1');
const wrong = turn.replace(file, 'return 0', 'return 2');
const said = (run: AgentRun): string => JSON.stringify(run.requests.at(-1)?.messages);

describe('from task to candidate', () => {
  test('view, failing check, edit, passing check, finish', async () => {
    const sandbox = box();
    const run = await play([turn.view(file), turn.run(unit), right, turn.run(unit), turn.finish('changed')], {
      contract: task(),
      sandbox,
    });
    expect(run.end).toEqual({ kind: 'finished', message: 'changed' });
    expect(sandbox.text('src/usage.py')).toBe('def one():\n    return 1\n');
    expect(sandbox.calls).toEqual([
      'read src/usage.py',
      'run unit',
      'read src/usage.py',
      'write src/usage.py',
      'run unit',
    ]);
  });

  test('a request is recorded before it is sent, and everything of a turn before the next', async () => {
    const order: string[] = [];
    const sandbox = box();
    await play([turn.view(file), turn.run(unit), turn.finish()], {
      contract: task({ requests: 3 }),
      sandbox,
      onFact: async (fact) => {
        await new Promise((resolve) => setImmediate(resolve));
        order.push(
          fact.kind === 'activity' ? `${fact.item.kind} after ${sandbox.calls.length}` : `${fact.kind} ${fact.n}`,
        );
      },
    });
    expect(order).toEqual([
      'request 1',
      'turn 1',
      'tool after 0',
      'result after 1',
      'request 2',
      'turn 2',
      'tool after 1',
      'result after 2',
      'request 3',
      'turn 3',
      'tool after 2',
    ]);
  });

  test('the prefix is byte-stable, small, and says nothing of supplemental checks', async () => {
    const run = await play([turn.view(file), turn.run('ls'), right, turn.run(unit), turn.finish()], {
      contract: task(),
      sandbox: box(),
    });
    const raw = run.facts.flatMap((f) => (f.kind === 'turn' ? [Buffer.from(f.turn.rawRequest).toString()] : []));
    for (const [i, body] of run.requests.slice(1).entries()) {
      const before = run.requests[i];
      expect(body.messages.slice(0, before?.messages.length)).toEqual(before?.messages);
      expect(JSON.stringify(body.tools)).toBe(JSON.stringify(before?.tools));
    }
    expect(raw.join('')).not.toContain('secret');
    expect(raw.join('')).not.toContain('acceptance');
    // 900 tokens is the aim; code and English are some four bytes a token.
    expect(Buffer.byteLength(JSON.stringify([run.requests[0]?.messages, run.requests[0]?.tools]))).toBeLessThan(3000);
  });

  test('the walk-through runs on any contract', async () => {
    const rehearsal = await startRehearsal({ scriptsDirs: [], log: () => undefined });
    try {
      const sandbox = box();
      const run = await runOn(rehearsal.engine, 'walkthrough', { contract: task(), sandbox });
      expect(run.end.kind).toBe('finished');
      expect(sandbox.calls).toEqual(['read src/usage.py', 'run unit']);
    } finally {
      await rehearsal.stop();
    }
  });

  test('several calls of one answer are done in order, equal ones too, and answered each', async () => {
    const sandbox = box();
    const run = await play(
      [{ toolCalls: [turn.run(unit), turn.run(unit), turn.view(file)].flatMap((t) => t.toolCalls) }, turn.finish()],
      { contract: task(), sandbox },
    );
    expect(sandbox.calls).toEqual(['run unit', 'run unit', 'read src/usage.py']);
    expect(run.requests[1]?.messages.filter((m) => m.role === 'tool')).toHaveLength(3);
  });

  test('a new file, an undo, and the reviewer’s words', async () => {
    const sandbox = box();
    const run = await play(
      [
        call('file_editor', { command: 'create', path: '/workspace/src/new.py', file_text: 'x = 1\n' }),
        turn.replace('/workspace/src/new.py', 'x = 1', 'x = 2'),
        call('file_editor', { command: 'undo_edit', path: '/workspace/src/new.py' }),
        turn.finish(),
        turn.finish(),
      ],
      {
        contract: task({ writable: [{ path: 'src/usage.py' }, { path: 'src/new.py', exists: false }] }),
        sandbox,
        feedback: 'Use a constant.',
      },
    );
    expect(run.end.kind).toBe('finished');
    expect(sandbox.text('src/new.py')).toBe('x = 1\n');
    expect(run.requests[0]?.messages[1]?.content).toContain('The reviewer wrote:\nUse a constant.');
  });
});

describe('denials', () => {
  test.each([
    ['a chained command', turn.run(`cd /workspace && ${unit}`), 'chaining', `- ${unit}`],
    ['a command that is not declared', turn.run('pytest'), 'not_declared', `- ${unit}`],
    ['a supplemental check', turn.run('python3 acceptance/secret.py'), 'not_declared', `- ${unit}`],
    ['a file that is not declared', turn.view('/etc/passwd'), 'not_readable', 'not a file of this task'],
    ['cat of such a file', turn.run('cat /etc/passwd'), 'not_readable', 'not a file of this task'],
    [
      'an edit of a read-only file',
      turn.replace('/workspace/tests/test_usage.py', 'a', 'b'),
      'not_writable',
      `Writable: ${file}`,
    ],
    ['a reset', call('terminal', { command: unit, reset: true }), 'reset', 'Denied: reset'],
  ])('%s is audited and answered, and the attempt goes on', async (_name, denied, code, text) => {
    const sandbox = box();
    const run = await play([denied, turn.finish()], { contract: task(), sandbox });
    expect(run.end.kind).toBe('finished');
    expect(sandbox.denials.map((d) => d.reason)).toEqual([code]);
    expect(sandbox.calls).toEqual([]);
    expect(run.activity.filter((a) => a.startsWith('denied'))).toHaveLength(1);
    expect(run.requests[1]?.messages.at(-1)?.content).toContain(text);
  });

  test('cat PATH of a readable file is a read', async () => {
    const sandbox = box();
    await play([turn.run('cat src/usage.py'), turn.finish()], { contract: task(), sandbox });
    expect(sandbox.calls).toEqual(['read src/usage.py']);
  });

  test('an undeclared tool is never executed and ends as the model’s fault', async () => {
    const peer = await startUndeclaredTool();
    try {
      const sandbox = box();
      const run = await runOn(engineOn(peer.host), peerModel, {
        contract: task(),
        sandbox,
        options: { numCtx: 8192, numPredict: 256 },
      });
      expect(run.end).toMatchObject({ kind: 'model_fault', code: 'repeated_error' });
      expect(sandbox.calls).toEqual([]);
      expect(peer.chats[1]).toContain('There is no tool');
    } finally {
      await peer.close();
    }
  });
});

describe('search', () => {
  const find = (query: string, path?: string) => call('search', { query, ...(path === undefined ? {} : { path }) });
  const toolNames = (run: AgentRun): readonly string[] =>
    ((run.requests[0]?.tools ?? []) as readonly { function: { name: string } }[]).map((tool) => tool.function.name);

  test('is offered and done where the contract has it; calls and answers are in the activity like any other', async () => {
    const sandbox = box();
    const run = await play([find('return'), find('import', 'tests'), turn.finish(), turn.finish()], {
      contract: task({ tools: ['search'] }),
      sandbox,
    });
    expect(toolNames(run)).toEqual(['terminal', 'file_editor', 'finish', 'think', 'search']);
    expect(sandbox.calls).toEqual(['read src/usage.py', 'read tests/test_usage.py', 'read tests/test_usage.py']);
    expect(run.requests[1]?.messages.at(-1)?.content).toContain(`\n${file}:2:     return 0`);
    expect(run.activity.slice(0, 4)).toEqual([
      'tool: search return',
      'result: search return',
      'tool: search import',
      'result: search import',
    ]);
  });

  test('elsewhere it is neither offered nor done: denied, audited and counted, however it is called', async () => {
    const sandbox = box();
    const run = await play([find('return'), call('grep', { pattern: 1 }), turn.finish(), turn.finish()], {
      contract: task(),
      sandbox,
    });
    expect(toolNames(run)).not.toContain('search');
    expect(sandbox.calls).toEqual([]);
    expect(sandbox.denials.map((d) => d.reason)).toEqual(['tool_not_allowed', 'tool_not_allowed']);
    expect(run.activity.filter((a) => a.startsWith('denied'))).toHaveLength(2);
    expect(said(run)).toContain('Denied: this task has no search. Tools: terminal, file_editor, finish, think.');
  });

  test('what does not fit the context is cut, and how to see the rest is said', async () => {
    const sandbox = new MemorySandbox({
      'src/usage.py': `return ${'x'.repeat(200)}\n`.repeat(60),
      'tests/test_usage.py': '',
    });
    const run = await play([find('return'), turn.finish(), turn.finish()], {
      contract: task({ tools: ['search'] }),
      sandbox,
      options: { numCtx: 10_240 },
    });
    expect(run.end.kind).toBe('finished');
    const shown = run.requests[1]?.messages.at(-1)?.content ?? '';
    expect(shown).toMatch(/^The first 50 lines/);
    expect(shown).toContain('[more lines have it;');
    expect(shown).toContain('[cut to fit the context; search one file or folder with path]');
  });

  test('costs some seventy tokens, and none without it; its prompt has a digest of its own', () => {
    const [without, withIt] = [task(), task({ tools: ['search'] })].map((contract) => {
      const tools = offeredTools(contract);
      const messages = firstMessages(contract, null);
      return {
        tokens: qwenTokens(qwenPrompt(messages, tools)),
        bare: qwenTokens(JSON.stringify(messages)) + qwenTokens(JSON.stringify(tools)),
        digest: promptDigest(tools),
      };
    });
    if (without === undefined || withIt === undefined) throw new Error('two were asked for');
    expect(without.digest).toBe(promptDigest(agentTools));
    expect(withIt.digest).not.toBe(without.digest);
    expect(withIt.tokens - without.tokens).toBeLessThan(80);
    expect(withIt.bare).toBeLessThanOrEqual(900);
  });
});

describe('help for small models', () => {
  test('an edit without a view is answered with the view; repeated, it is done', async () => {
    const sandbox = box();
    const run = await play([right, right, turn.run(unit), turn.finish()], { contract: task(), sandbox });
    expect(run.requests[1]?.messages.at(-1)?.content).toContain('2\t    return 0');
    expect(run.end.kind).toBe('finished');
    const off = box();
    await play([right, turn.finish(), turn.finish()], {
      contract: task(),
      sandbox: off,
      switches: { viewBeforeEdit: false },
    });
    expect(off.text('src/usage.py')).toContain('return 1');
  });

  test('the failing assertion is shown again after an edit', async () => {
    const script = [turn.run(unit), turn.view(file), wrong, turn.finish(), turn.finish()];
    const on = await play(script, { contract: task(), sandbox: box() });
    expect(on.requests[3]?.messages.at(-1)?.content).toContain('AssertionError: 0 != 1');
    const off = await play(script, { contract: task(), sandbox: box(), switches: { repeatFailure: false } });
    expect(off.requests[3]?.messages.at(-1)?.content).not.toContain('AssertionError');
  });

  test('a small file may be written whole, once viewed, if the binding says so', async () => {
    const write = call('file_editor', { command: 'create', path: file, file_text: 'def one():\n    return 1\n' });
    const on = box();
    await play([turn.view(file), write, turn.finish(), turn.finish()], { contract: task(), sandbox: on });
    expect(on.text('src/usage.py')).toContain('return 1');
    const off = box();
    await play([turn.view(file), write, turn.finish()], {
      contract: task(),
      sandbox: off,
      switches: { wholeFile: false },
    });
    expect(off.text('src/usage.py')).toContain('return 0');
  });

  test('an answer without a call is no finish: one nudge each, then the model’s fault', async () => {
    const run = await play([{ content: 'Done!' }, { content: '' }, { content: 'Really done.' }], {
      contract: task(),
      sandbox: box(),
    });
    expect(run.end).toMatchObject({ kind: 'model_fault', code: 'monologue' });
    expect(run.requests).toHaveLength(3);
    expect(run.requests[1]?.messages.at(-1)).toMatchObject({ role: 'user' });
    const off = await play([{ content: 'Done!' }], {
      contract: task(),
      sandbox: box(),
      switches: { nudgeEmptyTurn: false },
    });
    expect(off.end).toMatchObject({ kind: 'model_fault', code: 'empty_turn' });
  });

  test('a call printed as text is answered with a hint, and done only where the binding says so', async () => {
    const printed = { content: `<tool_call>{"name":"terminal","arguments":{"command":"${unit}"}}</tool_call>` };
    const off = box();
    const hinted = await play([printed, turn.finish()], { contract: task(), sandbox: off });
    expect(off.calls).toEqual([]);
    expect(hinted.activity).toContain('hint: call_as_text');
    const on = box();
    const done = await play([printed, turn.finish()], {
      contract: task(),
      sandbox: on,
      switches: { executeTextCalls: true },
    });
    expect(on.calls).toEqual(['run unit']);
    expect(done.activity).toContain(`tool: terminal ${unit} (printed as text)`);
  });

  test('finish before the checks have passed is asked back once', async () => {
    const run = await play([turn.view(file), wrong, turn.finish('a'), turn.finish('b')], {
      contract: task(),
      sandbox: box(),
    });
    expect(run.activity).toContain('hint: finish_before_checks');
    expect(run.end).toEqual({ kind: 'finished', message: 'b' });
  });

  test('with the gate off, a finish is taken at its word', async () => {
    const run = await play([turn.finish('I think so')], {
      contract: task(),
      sandbox: box(),
      switches: { finishGate: false },
    });
    expect(run.end).toEqual({ kind: 'finished', message: 'I think so' });
    expect(run.requests).toHaveLength(1);
  });

  test('load-time options are the same on every request: an engine that reloads on another one loads once', async () => {
    let loads = 0;
    let loaded = '';
    const peer = await startOllamaPeer({
      ps: (chats) => (chats === 0 ? [] : [{ ...honestLoaded, context_length: 16_384 }]),
      chat: (response, body) => {
        const { options, shift, messages } = JSON.parse(body) as {
          options: Record<string, unknown>;
          shift: boolean;
          messages: readonly { role: string }[];
        };
        const { num_ctx, num_batch, num_gpu, main_gpu, use_mmap, num_thread, draft_num_predict } = options;
        const load = JSON.stringify([
          num_ctx,
          num_batch,
          num_gpu,
          main_gpu,
          use_mmap,
          num_thread,
          draft_num_predict,
          shift,
        ]);
        if (load !== loaded) loads += 1;
        loaded = load;
        const n = messages.filter((m) => m.role === 'assistant').length;
        streaming(response).end(
          (n < 6 ? callLine('think', { thought: `step ${n}` }) : callLine('finish', { message: 'x' })) +
            lastLine.replace('"prompt_eval_count":120', `"prompt_eval_count":${300 + n * 60}`),
        );
      },
    });
    try {
      const run = await runOn(engineOn(peer.host), peerModel, { contract: task(), sandbox: box() });
      expect(run.end.kind).toBe('finished');
      expect(peer.chats.length).toBeGreaterThan(6);
      expect(loads).toBe(1);
      // The prefix is the same bytes: each request begins as the one before ended.
      const texts = peer.chats.map((body) =>
        JSON.stringify((JSON.parse(body) as { messages: unknown[] }).messages).slice(0, -1),
      );
      for (const [i, text] of texts.slice(1).entries()) expect(text.startsWith(texts[i] ?? '?')).toBe(true);
    } finally {
      await peer.close();
    }
  });

  test('finish without any change is asked back once where a check is known to fail', async () => {
    const run = await play([turn.finish('nothing to do'), turn.finish('sure')], { contract: task(), sandbox: box() });
    expect(run.requests[1]?.messages.at(-1)?.content).toContain(`\`${unit}\` fails on the unchanged files`);
    expect(run.end).toEqual({ kind: 'finished', message: 'sure' });
    const last = await play([turn.finish('at once')], { contract: task({ requests: 1 }), sandbox: box() });
    expect(last.end).toEqual({ kind: 'finished', message: 'at once' });
  });

  test('the last request is kept for finish once all checks have passed: nothing else is done in it', async () => {
    const sandbox = box();
    const run = await play([turn.view(file), right, turn.run(unit), turn.replace(file, 'return 1', 'return 9')], {
      contract: task({ requests: 4 }),
      sandbox,
    });
    expect(said(run)).toContain('this is the last request. Call finish now');
    expect(sandbox.text('src/usage.py')).toContain('return 1');
    expect(run.end).toMatchObject({ kind: 'limit', which: 'requests' });
    const finished = await play([turn.view(file), right, turn.run(unit), turn.finish()], {
      contract: task({ requests: 4 }),
      sandbox: box(),
    });
    expect(finished.end.kind).toBe('finished');
  });
});

describe('limits and loops', () => {
  test('requests', async () => {
    const run = await play([turn.view(file), turn.run(unit), turn.view(file), turn.run(unit)], {
      contract: task({ requests: 3 }),
      sandbox: box(),
    });
    expect(run.end).toMatchObject({ kind: 'limit', which: 'requests' });
    expect(run.requests).toHaveLength(3);
  });

  test('context: refused before anything is sent, with the arithmetic', async () => {
    const run = await play([turn.finish()], { contract: task(), sandbox: box(), options: { numCtx: 4096 } });
    expect(run.end).toMatchObject({ kind: 'limit', which: 'context' });
    expect(run.end.kind === 'limit' && run.end.detail).toContain('limit 4096 − 1536');
    expect(run.facts).toEqual([]);
  });

  test('context: a long output is cut to the room that is left, says so, and does not end the attempt', async () => {
    const sandbox = new MemorySandbox(
      { 'src/usage.py': 'x\n' },
      { unit: () => ({ end: { kind: 'exit', code: 1 }, output: Buffer.from('first\n' + 'out\n'.repeat(20_000)) }) },
    );
    const run = await play([turn.run(unit), turn.view(file), turn.run(unit), turn.finish()], {
      contract: task(),
      sandbox,
    });
    expect(run.end.kind).toBe('finished');
    const shown = run.requests[1]?.messages.at(-1)?.content ?? '';
    expect(shown).toMatch(/^first\n/);
    expect(shown).toContain('[exit code 1]');
    expect(shown).toMatch(/bytes left out here/);
    expect(shown).toContain('cut to fit the context');
  });

  test('context: a conversation that grows ends before it could overflow', async () => {
    const text = Array.from({ length: 400 }, (_, i) => `line ${i} of a long file`).join('\n');
    const sandbox = new MemorySandbox({ 'src/usage.py': text });
    const ranges = Array.from({ length: 10 }, (_, i) =>
      call('file_editor', { command: 'view', path: file, view_range: [i + 1, 400] }),
    );
    const run = await play(ranges, { contract: task(), sandbox, options: { numCtx: 8192 } });
    expect(run.end).toMatchObject({ kind: 'limit', which: 'context' });
    const counts = run.facts.flatMap((f) => (f.kind === 'turn' ? [f.turn.receipt.promptTokens ?? 0] : []));
    expect(counts.length).toBeGreaterThan(2);
    expect(Math.max(...counts)).toBeLessThanOrEqual(8192 - 1536);
  });

  test('output: answers that are cut again and again', async () => {
    const cut = { content: 'and so on', fault: 'length' };
    const run = await play([cut, cut, cut], { contract: task(), sandbox: box() });
    expect(run.end).toMatchObject({ kind: 'limit', which: 'output' });
    expect(run.activity).toContain('hint: cut');
  });

  test('wall time, in the middle of a held turn', async () => {
    const run = await play([{ holdUntilFile: '/nonexistent/never' }], {
      contract: task({ wallS: 0.2 }),
      sandbox: box(),
    });
    expect(run.end).toMatchObject({ kind: 'limit', which: 'wall' });
  });

  test('the same action with the same result: warned, then ended', async () => {
    const run = await play(
      Array.from({ length: 6 }, () => turn.run(unit)),
      { contract: task(), sandbox: box() },
    );
    expect(run.end).toMatchObject({ kind: 'model_fault', code: 'repeated_action' });
    expect(run.requests).toHaveLength(4);
    expect(run.requests[3]?.messages.at(-1)?.content).toContain('You did this before with the same result');
  });
});

describe('faults', () => {
  test.each([
    ['cut', { kind: 'transport', code: 'stream_cut' }],
    ['queue-full', { kind: 'transport', code: 'queue_full' }],
    ['out-of-memory', { kind: 'resource', code: 'out_of_memory' }],
  ])('%s of the engine', async (fault, end) => {
    const run = await play([{ fault, content: 'x' }], { contract: task(), sandbox: box() });
    expect(run.end).toMatchObject(end);
    expect(run.facts.map((f) => f.kind)).toEqual(['request', 'failure']);
  });

  test('an unparsable call is asked for once more, differently, then the model’s fault', async () => {
    const run = await play([{ fault: 'tool-parse-error' }], { contract: task(), sandbox: box() });
    expect(run.end).toMatchObject({ kind: 'model_fault', code: 'tool_call_unparsable' });
    expect(run.requests).toHaveLength(2);
    expect(run.requests[0]).not.toEqual(run.requests[1]);
  });

  test.each(['denied', 'not-found', 'conflict', 'too-large', 'invalid'] as const)(
    'sandbox %s is an answer',
    async (code) => {
      const sandbox = box();
      sandbox.faults.push(new SandboxFault(code, 'because'));
      const run = await play([turn.run(unit), turn.finish()], { contract: task(), sandbox });
      expect(run.end.kind).toBe('finished');
      expect(said(run)).toContain(code);
    },
  );

  test.each(['channel', 'engine'] as const)('sandbox %s ends it as infrastructure', async (code) => {
    const sandbox = box();
    sandbox.faults.push(new SandboxFault(code, 'gone'));
    const run = await play([turn.run(unit), turn.finish()], { contract: task(), sandbox });
    expect(run.end).toEqual({ kind: 'infrastructure', code, detail: 'gone' });
  });

  test('a full workspace is an answer once, and a blocker when it happens again', async () => {
    const once = box();
    once.faults.push(new SandboxFault('no-space', 'full'));
    expect((await play([turn.run(unit), turn.finish()], { contract: task(), sandbox: once })).end.kind).toBe(
      'finished',
    );
    const twice = box();
    twice.faults.push(new SandboxFault('no-space', 'full'), new SandboxFault('no-space', 'full'));
    expect((await play([turn.run(unit), turn.view(file)], { contract: task(), sandbox: twice })).end).toMatchObject({
      kind: 'resource',
      code: 'no_space',
    });
  });

  test('a cancel during a held turn returns at once', async () => {
    const abort = new AbortController();
    const run = await play([{ holdUntilFile: '/nonexistent/never' }], {
      contract: task(),
      sandbox: box(),
      signal: abort.signal,
      onFact: (fact) => {
        // The request is recorded, so the next thing is the held turn.
        if (fact.kind === 'request') setImmediate(() => abort.abort(new Error('closed')));
      },
    });
    expect(run.end).toEqual({ kind: 'cancelled' });
  });
});
