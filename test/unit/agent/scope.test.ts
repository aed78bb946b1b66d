import { describe, expect, it } from 'vitest';
import type { FrozenContract } from '../../../src/protocol/contract.ts';
import { sha256 } from '../../../src/protocol/hash.ts';
import type { FileEntry, RelPath } from '../../../src/protocol/primitives.ts';
import { firstMessages, offeredTools, promptDigest } from '../../../src/server/agent/prompt.ts';
import { ScopeUnavailable } from '../../../src/server/scope/port.ts';
import { scopeGuard, type ScopeGuard } from '../../../src/server/scope/scope-guard.ts';
import { call, play, turn, type AgentRun } from '../../fixtures/agent-run.ts';
import { frozenContract } from '../../fixtures/frozen-contract.ts';
import { MemorySandbox } from '../../fixtures/memory-sandbox.ts';
import { scope } from '../../fixtures/scope.ts';

const path = 'src/usage.py' as RelPath;
const original = 'import os\n\n\ndef timestamp(text):\n    return parse(text)\n\n\ndef other(x):\n    return x\n';
const check = 'python3 -m unittest tests.test_usage';
const shown = '/workspace/src/usage.py';

function contract(symbols: readonly { name: string; exists: boolean }[] | null, requests = 12): FrozenContract {
  const bytes = Buffer.from(original);
  const files: FrozenContract['files'] = [
    { path, mode: 0o644, size: bytes.byteLength, sha256: sha256(bytes), protected: false },
  ];
  const base = frozenContract({ readable: ['src/usage.py'], requests });
  return {
    ...base,
    files,
    writable: [{ path, exists: true, symbols: symbols === null ? null : [...symbols] }],
  };
}
const onlyTimestamp = [{ name: 'timestamp', exists: true }];

/** The loop over a sandbox in memory, the real parser beside it; the check passes once the text has `UTC`. */
async function run(
  turns: readonly unknown[],
  frozen: FrozenContract,
  guard: ScopeGuard = scopeGuard(frozen, scope, (_entry: FileEntry) => Promise.resolve(Buffer.from(original))),
): Promise<AgentRun & { readonly sandbox: MemorySandbox; readonly answers: readonly string[] }> {
  const sandbox = new MemorySandbox(
    { 'src/usage.py': original },
    {
      unit: (files) => ({
        end: { kind: 'exit', code: Buffer.from(files.get('src/usage.py') ?? []).includes('UTC') ? 0 : 1 },
      }),
    },
  );
  const played = await play(turns, { contract: frozen, sandbox, scope: guard });
  const answers = (played.requests.at(-1)?.messages ?? []).filter(({ role }) => role === 'tool').map((m) => m.content);
  return { ...played, sandbox, answers };
}

describe('an edit under a contract that names symbols', () => {
  it('is not made where it changes what is outside: the answer says what may change and where it went beyond', async () => {
    const { end, sandbox, answers } = await run(
      [
        turn.view(shown),
        turn.replace(shown, 'return x', 'return x + 1'),
        turn.replace(shown, 'import os', 'import os\nimport re'),
        turn.replace(shown, 'parse(text)', 'parse(text, UTC)'),
        turn.run(check),
        turn.finish(),
      ],
      contract(onlyTimestamp),
    );
    expect(answers[1]).toBe(
      'Denied: in /workspace/src/usage.py only timestamp may change. Line 9 is outside and would be `return x + 1` instead of `return x`. Nothing was changed.',
    );
    expect(answers[2]).toContain('Line 2 is outside and would be new: `import re`. Imports may not change.');
    expect(answers[3]).toContain('Changed.');
    expect(sandbox.text(path)).toBe(original.replace('parse(text)', 'parse(text, UTC)'));
    // Audited as every denial is.
    expect(sandbox.denials).toEqual([
      { request: 'edit src/usage.py (changed)', reason: 'out_of_scope' },
      { request: 'edit src/usage.py (added)', reason: 'out_of_scope' },
    ]);
    expect(end.kind).toBe('finished');
  });

  it('may leave a file that does not parse, which no finish ends', async () => {
    const { end, answers, activity, sandbox } = await run(
      [
        turn.view(shown),
        turn.replace(shown, 'parse(text)', 'parse(text, UTC'),
        turn.run(check),
        turn.finish(),
        turn.replace(shown, 'UTC', 'UTC)'),
        turn.run(check),
        turn.finish(),
      ],
      contract(onlyTimestamp),
    );
    expect(answers[1]).toMatch(/Changed\.[^]*It does not parse: line \d+ .*Mend it with the next edit\./);
    expect(answers[2]).toMatch(/All checks pass, but \/workspace\/src\/usage\.py must parse/);
    expect(answers[3]).toMatch(/^Not finished: \/workspace\/src\/usage\.py must parse/);
    expect(activity).toContain('denied: finish');
    expect(sandbox.denials).toEqual([{ request: 'finish', reason: 'out_of_scope' }]);
    expect(end.kind).toBe('finished');
  });

  it('a finish that is refused again and again ends the attempt as going in circles', async () => {
    const { end } = await run(
      [
        turn.view(shown),
        turn.replace(shown, 'parse(text)', 'parse(text, UTC'),
        turn.finish(),
        turn.finish(),
        turn.finish(),
        turn.finish(),
      ],
      contract(onlyTimestamp),
    );
    expect(end).toMatchObject({ kind: 'model_fault', code: 'repeated_error' });
  });

  it('a finish in the last request does not end with bytes that nobody can accept', async () => {
    const { end } = await run(
      [turn.view(shown), turn.replace(shown, 'parse(text)', 'parse(text, UTC'), turn.run(check), turn.finish()],
      contract(onlyTimestamp, 4),
    );
    expect(end).toMatchObject({ kind: 'limit', which: 'requests' });
  });

  it('taken back, the file is what it was, and so is what is known of it', async () => {
    const { end, sandbox } = await run(
      [
        turn.view(shown),
        turn.replace(shown, 'parse(text)', 'parse(text, UTC)'),
        turn.replace(shown, 'UTC)', 'UTC'),
        call('file_editor', { command: 'undo_edit', path: shown }),
        turn.run(check),
        turn.finish(),
      ],
      contract(onlyTimestamp),
    );
    expect(sandbox.text(path)).toContain('parse(text, UTC)\n');
    expect(end.kind).toBe('finished');
  });

  it('writing the file whole is held against the symbols, too', async () => {
    const { answers, sandbox } = await run(
      [
        turn.view(shown),
        call('file_editor', { command: 'create', path: shown, file_text: 'def timestamp(text):\n    return 1\n' }),
        turn.finish(),
        turn.finish(),
      ],
      contract(onlyTimestamp),
    );
    expect(answers[1]).toContain('what is outside would be gone');
    expect(sandbox.text(path)).toBe(original);
  });

  it('lets imports change, and what is new come, where they are named', async () => {
    const { answers } = await run(
      [
        turn.view(shown),
        turn.replace(shown, 'import os', 'import os\nimport re'),
        turn.replace(shown, 'def other', 'def helper():\n    pass\n\n\ndef other'),
        turn.finish(),
        turn.finish(),
      ],
      contract([...onlyTimestamp, { name: 'imports', exists: true }, { name: 'helper', exists: false }]),
    );
    expect(answers.slice(1, 3).map((text) => text.split('\n')[0])).toEqual([
      expect.stringContaining('Changed.'),
      expect.stringContaining('Changed.'),
    ]);
  });

  it("where nothing can be compared, the attempt ends as the machine's fault", async () => {
    const guard: ScopeGuard = {
      limits: () => true,
      check: () => Promise.reject(new ScopeUnavailable('the parser did not start')),
    };
    const { end, sandbox } = await run(
      [turn.view(shown), turn.replace(shown, 'parse(text)', 'parse(text, UTC)')],
      contract(onlyTimestamp),
      guard,
    );
    expect(end).toMatchObject({ kind: 'infrastructure', code: 'scope_unavailable' });
    expect(sandbox.text(path)).toBe(original);
  });
});

describe('what the model is told of symbols', () => {
  it('is a word at the file, and nothing where none are named', () => {
    const task = (frozen: FrozenContract): string => firstMessages(frozen, null)[1]?.content ?? '';
    const named = [...onlyTimestamp, { name: 'imports', exists: true }, { name: 'helper', exists: false }];
    expect(task(contract(named))).toContain('- /workspace/src/usage.py (only timestamp, imports, new helper)\n');
    expect(task(contract(null))).toBe(task(contract(named)).replace(' (only timestamp, imports, new helper)', ''));
  });

  it('leaves prompt and tools as they are for every contract', () => {
    expect(promptDigest(offeredTools(contract(onlyTimestamp)))).toBe(promptDigest(offeredTools(contract(null))));
  });
});
