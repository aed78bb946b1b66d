import * as fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { defaultSwitches } from '../../../src/server/agent/defaults.ts';
import { linesWith, searchLimits } from '../../../src/server/agent/search.ts';
import { unlimited } from '../../../src/server/scope/scope-guard.ts';
import { createToolbox, type ToolOutcome } from '../../../src/server/agent/toolbox.ts';
import type { FrozenContract } from '../../../src/protocol/contract.ts';
import type { RelPath } from '../../../src/protocol/primitives.ts';
import { SandboxFault } from '../../../src/server/sandbox/port.ts';
import { anySha256, frozenContract } from '../../fixtures/frozen-contract.ts';
import { MemorySandbox } from '../../fixtures/memory-sandbox.ts';

type Files = Readonly<Record<string, string | Uint8Array>>;

/** A toolbox over these files, all readable but the ones in `hidden/`, which are there all the same. */
function toolbox(files: Files, parts: Parameters<typeof frozenContract>[0] = {}, more: Partial<FrozenContract> = {}) {
  const sandbox = new MemorySandbox(files);
  const contract = {
    ...frozenContract({
      tools: ['search'],
      readable: Object.keys(files).filter((path) => !path.startsWith('hidden/')),
      writable: [{ path: 'src/new.py', exists: false }],
      ...parts,
    }),
    ...more,
  };
  const tools = createToolbox(contract, defaultSwitches, sandbox, unlimited);
  const find = (
    query: string,
    path: string | null = null,
    signal: AbortSignal = new AbortController().signal,
  ): Promise<ToolOutcome> => tools.act({ tool: 'search', query, path }, signal);
  return { sandbox, tools, find };
}

const lines = (outcome: ToolOutcome): readonly string[] => outcome.text.split('\n');
const numbered = (n: number, text: string): Files =>
  Object.fromEntries(Array.from({ length: n }, (_, i) => [`f/${String(i).padStart(5, '0')}.txt`, text]));

describe('what is found', () => {
  test('each line once, as it is, in the order of paths and lines, whatever the order of the contract', async () => {
    const { find } = toolbox({
      'src/b.py': 'x = needle\r\n\r\n\tneedle needle\r\n',
      'src/a.py': 'none\nneedle',
      'src/a/z.py': '\uFEFFneedle\n',
    });
    expect(await find('needle')).toEqual({
      ok: true,
      denied: null,
      exhausted: null,
      text: [
        '4 lines in 3 of 4 files:',
        '/workspace/src/a.py:2: needle',
        '/workspace/src/a/z.py:1: needle',
        '/workspace/src/b.py:1: x = needle',
        '/workspace/src/b.py:3: \tneedle needle',
      ].join('\n'),
    });
  });

  test('the text is literal, and letter case counts', async () => {
    const { find } = toolbox({ 'a.txt': 'f(x)[0].*\nfoo\nFoo $& \\d+' });
    expect(lines(await find('[0].*'))).toContain('/workspace/a.txt:1: f(x)[0].*');
    expect(lines(await find('$& \\d+'))).toContain('/workspace/a.txt:3: Foo $& \\d+');
    expect(await find('fo+|.*')).toMatchObject({ ok: true, text: expect.stringContaining('taken literally') });
    expect(lines(await find('Foo'))[0]).toBe('1 line in 1 of 2 files:');
  });

  test('it is what the files hold now, and a search is no view', async () => {
    const { find, tools, sandbox } = toolbox(
      { 'src/a.py': 'old\n' },
      { writable: [{ path: 'src/a.py' }, { path: 'src/new.py', exists: false }] },
    );
    const signal = new AbortController().signal;
    const replace = { tool: 'file_editor', command: 'str_replace', path: 'src/a.py', oldText: 'old', newText: 'fresh' };
    const edit = () => tools.act(replace as Parameters<typeof tools.act>[0], signal);
    await find('old');
    expect((await edit()).text).toContain('view a file before you edit it');
    await edit();
    await tools.act({ tool: 'file_editor', command: 'create', path: 'src/new.py', fileText: 'fresh too\n' }, signal);
    expect(lines(await find('fresh')).slice(1)).toEqual([
      '/workspace/src/a.py:1: fresh',
      '/workspace/src/new.py:1: fresh too',
    ]);
    expect(sandbox.text('src/a.py')).toBe('fresh\n');
  });

  test('the same as splitting says, for any text and any part of a line', () => {
    const unit = fc.constantFrom('a', 'b', 'ab', '\n', ' ', '\u{1F9D1}', 'é');
    fc.assert(
      fc.property(
        fc.array(unit, { maxLength: 60 }).map((parts) => parts.join('')),
        fc.array(unit, { minLength: 1, maxLength: 3 }).map((parts) => parts.join('').replaceAll('\n', 'a')),
        fc.integer({ min: 1, max: 5 }),
        (text, query, most) => {
          const expected = text
            .split('\n')
            .flatMap((line, i) => (line.includes(query) ? [{ line: i + 1, text: line }] : []));
          expect(linesWith(text, query, most)).toEqual(expected.slice(0, most));
        },
      ),
    );
  });
});

describe('only what the model may read', () => {
  test('files that the contract does not declare are not asked for, though they have the text', async () => {
    const { find, sandbox } = toolbox({ 'src/a.py': 'needle\n', 'hidden/b.py': 'needle\n', 'srcs/c.py': 'needle\n' });
    expect(lines(await find('needle'))).toEqual([
      '2 lines in 2 of 3 files:',
      '/workspace/src/a.py:1: needle',
      '/workspace/srcs/c.py:1: needle',
    ]);
    expect(sandbox.calls).not.toContain('read hidden/b.py');
    // A folder is its files, not what begins like it; a file is itself.
    sandbox.calls.length = 0;
    expect(lines(await find('needle', '/workspace/src/'))).toHaveLength(2);
    expect(lines(await find('needle', 'src/a.py'))).toHaveLength(2);
    expect(sandbox.calls).toEqual(['read src/a.py', 'read src/new.py', 'read src/a.py']);
  });

  test.each(['hidden', 'hidden/b.py', '/etc', '/', '../src', '/workspace/src/../hidden', 'src/*', 'missing.py'])(
    'a path that is not declared, %s, is denied and audited; nothing is read',
    async (path) => {
      const { find, sandbox } = toolbox({ 'src/a.py': 'needle\n', 'hidden/b.py': 'needle\n' });
      expect(await find('needle', path)).toMatchObject({ ok: false, denied: 'not_readable' });
      expect(sandbox.denials).toEqual([{ request: `search needle in ${path}`, reason: 'not_readable' }]);
      expect(sandbox.calls).toEqual([]);
    },
  );

  test('without it in the contract it is denied here, too, whoever lets a call through', async () => {
    const { find, sandbox } = toolbox({ 'src/a.py': 'needle\n' }, { tools: [] });
    expect(await find('needle')).toMatchObject({ ok: false, denied: 'tool_not_allowed' });
    expect(sandbox.denials).toEqual([{ request: 'search needle', reason: 'tool_not_allowed' }]);
    expect(sandbox.calls).toEqual([]);
  });
});

describe('texts that can not be looked for are answered with what can', () => {
  test.each([
    ['nothing', '', 'query is empty'],
    ['white space', ' \t ', 'query is empty'],
    ['two lines', 'a\nb', 'more than one line'],
    ['a carriage return', 'a\rb', 'more than one line'],
    ['a long one', 'x'.repeat(searchLimits.query + 1), `at most ${searchLimits.query}`],
    ['megabytes', 'x'.repeat(5_000_000), `at most ${searchLimits.query}`],
    ['half a character', 'a\uD800', 'not valid Unicode'],
  ])('%s', async (_what, query, said) => {
    const { find, sandbox } = toolbox({ 'a.txt': 'x\n' });
    const outcome = await find(query);
    expect(outcome).toMatchObject({ ok: false, denied: null, text: expect.stringContaining(said) });
    expect(outcome.text.length).toBeLessThan(200);
    expect(sandbox.calls).toEqual([]);
  });

  test('the longest that is possible is found, and shown whole', async () => {
    const query = 'q'.repeat(searchLimits.query);
    const { find } = toolbox({ 'a.txt': `${'x'.repeat(5000)}${query}${'y'.repeat(5000)}` });
    expect((await find(query)).text).toContain(query);
  });
});

describe('bounds, each said', () => {
  test('lines: exactly as many as are shown are all; one more is said, and no further file is read', async () => {
    const fits = toolbox({ 'a.txt': 'x\n'.repeat(searchLimits.lines), 'b.txt': 'y\n' });
    expect(lines(await fits.find('x'))).toHaveLength(searchLimits.lines + 1);
    const { find, sandbox } = toolbox({ 'a.txt': 'x\n'.repeat(searchLimits.lines), 'b.txt': 'x\n', 'c.txt': 'x\n' });
    const found = lines(await find('x'));
    expect(found).toHaveLength(searchLimits.lines + 2);
    expect(found[0]).toBe('The first 50 lines that have it:');
    expect(found.at(-1)).toBe('[more lines have it; name a file or folder with path, or a longer text]');
    expect(sandbox.calls).toEqual(['read a.txt', 'read b.txt']);
  });

  test('the length of a line: cut around the text, at whole characters, with what was cut', async () => {
    const { find } = toolbox({ 'a.txt': `${'\u{1F9D1}'.repeat(4000)}needle${'\u{1F9D1}'.repeat(4001)}` });
    const line = lines(await find('needle'))[1] ?? '';
    expect(line).toContain('\u{1F9D1}needle\u{1F9D1}');
    expect(line.isWellFormed()).toBe(true);
    expect(line.length).toBeLessThan(searchLimits.line + 60);
    const shown = /: …(.*)… \((\d+) more characters\)$/u.exec(line);
    expect((shown?.[1]?.length ?? 0) + Number(shown?.[2])).toBe(8000 + 6 + 8002);
  });

  test('a line that is megabytes long, and a text that is in it a million times, hold nobody up', async () => {
    const { find } = toolbox({ 'a.txt': 'ab'.repeat(1_000_000), 'b.txt': `${'\n'.repeat(1_900_000)}ab` });
    expect(lines(await find('ab')).map((line) => line.slice(0, 30))).toEqual([
      '2 lines in 2 of 3 files:',
      '/workspace/a.txt:1: ababababab',
      '/workspace/b.txt:1900001: ab',
    ]);
  });

  test('files a search, and a folder gets at the rest', async () => {
    const { find, sandbox } = toolbox({ ...numbered(searchLimits.files + 1, 'x\n'), 'z/a.txt': 'needle\n' });
    const found = lines(await find('needle'));
    expect(sandbox.calls).toHaveLength(searchLimits.files);
    expect(found[0]).toContain('No line has it in 500 files');
    expect(found.at(-1)).toBe('[stopped after 500 files, 503 in all; name a file or folder with path]');
    expect(lines(await find('needle', 'z'))).toContain('/workspace/z/a.txt:1: needle');
  });

  test('files of all searches of an attempt: the audit keeps room for the work', async () => {
    const { find, sandbox } = toolbox(numbered(searchLimits.files, 'x\n'), { writable: [] });
    for (let n = 0; n < searchLimits.filesOfAttempt / searchLimits.files; n += 1) await find('needle');
    expect(sandbox.calls).toHaveLength(searchLimits.filesOfAttempt);
    expect(await find('x')).toMatchObject({
      ok: false,
      text: expect.stringContaining('as many as they may; use view'),
    });
    expect(sandbox.calls).toHaveLength(searchLimits.filesOfAttempt);
  });

  test('bytes: a large file is not read at all, and all together have an end', async () => {
    const sized = (path: string, size: number) => ({
      path: path as RelPath,
      size,
      mode: 0o644,
      sha256: anySha256,
      protected: false,
    });
    const { fileBytes, bytes } = searchLimits;
    const large = toolbox(
      { 'a.txt': 'needle\n', 'big.txt': 'needle\n' },
      {},
      { files: [sized('a.txt', 7), sized('big.txt', fileBytes + 1)] },
    );
    expect(lines(await large.find('needle')).at(-1)).toBe('[1 file larger than 2 MiB not searched]');
    expect(large.sandbox.calls).not.toContain('read big.txt');
    // What is counted is what was read, also where the contract knew of less.
    const whole = numbered(bytes / fileBytes + 1, 'x'.repeat(fileBytes));
    const many = toolbox(whole, { writable: [] }, { files: [sized('f/00008.txt', fileBytes)] });
    expect(lines(await many.find('needle')).at(-1)).toContain('stopped after 8 files, 9 in all');
  });

  test('what is no text is left out, and said', async () => {
    const { find } = toolbox({
      'a.bin': Buffer.from('needle\0'),
      'b.txt': Buffer.from([0x6e, 0xff, 0xfe]),
      'c.txt': 'needle\n',
    });
    expect(lines(await find('needle')).slice(1)).toEqual([
      '/workspace/c.txt:1: needle',
      '[2 files not searched: no UTF-8 text]',
    ]);
  });
});

describe('ends', () => {
  test('a cancel between two files: no further one is read', async () => {
    const abort = new AbortController();
    const { find, sandbox } = toolbox(numbered(20, 'x\n'));
    const read = sandbox.read.bind(sandbox);
    sandbox.read = async (...args) => {
      if (sandbox.calls.length === 3) abort.abort();
      return read(...args);
    };
    await expect(find('x', null, abort.signal)).rejects.toMatchObject({ code: 'cancelled' });
    expect(sandbox.calls).toHaveLength(3);
  });

  test('faults of the sandbox end it as they end any other call', async () => {
    const { find, sandbox } = toolbox({ 'a.txt': 'x\n' });
    sandbox.faults.push(new SandboxFault('channel', 'gone'));
    await expect(find('x')).rejects.toMatchObject({ code: 'channel' });
    sandbox.faults.push(new SandboxFault('no-space', 'the audit log is full'));
    expect(await find('x')).toMatchObject({ ok: false, exhausted: 'no_space' });
  });
});
