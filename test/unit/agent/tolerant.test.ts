import { describe, expect, test } from 'vitest';
import { callsInText, readCall } from '../../../src/server/agent/tolerant.ts';

const usual = ['terminal', 'file_editor', 'finish', 'think'];
const read = (name: string, args: unknown, offered: readonly string[] = usual): ReturnType<typeof readCall> =>
  readCall({ id: null, name, arguments: args }, offered);
const call = (name: string, args: unknown, offered?: readonly string[]): unknown => {
  const result = read(name, args, offered);
  return result.ok ? result.call : result.code;
};

describe('tolerant reading', () => {
  test.each([
    ['bash', { command: 'x' }, { tool: 'terminal', command: 'x' }],
    ['functions.execute_bash', { command: 'x', timeout: 10, summary: 'why' }, { tool: 'terminal', command: 'x' }],
    ['terminal<|channel|>commentary', '{"command":"x"}', { tool: 'terminal', command: 'x' }],
    [
      'str_replace_editor',
      { command: 'view', path: 'a' },
      { tool: 'file_editor', command: 'view', path: 'a', range: null },
    ],
    [
      'file_editor',
      { path: 'a', view_range: '[1, 5]' },
      { tool: 'file_editor', command: 'view', path: 'a', range: [1, 5] },
    ],
    [
      'file_editor',
      { path: 'a', old_str: 'x', new_str: 'y', view_range: null },
      { tool: 'file_editor', command: 'str_replace', path: 'a', oldText: 'x', newText: 'y' },
    ],
    [
      'file_editor',
      { command: 'insert', path: 'a', insert_line: '3', new_str: 'y' },
      { tool: 'file_editor', command: 'insert', path: 'a', line: 3, newText: 'y' },
    ],
    [
      'file_editor',
      '{"command":"create","path":"a","file_text":"x\ny"}',
      { tool: 'file_editor', command: 'create', path: 'a', fileText: 'x\ny' },
    ],
    ['finish', {}, { tool: 'finish', message: '' }],
    ['Think', { thought: 'x' }, { tool: 'think', thought: 'x' }],
  ])('%s %j', (name, args, expected) => {
    expect(call(name, args)).toEqual(expected);
  });
});

describe('strict doing', () => {
  test.each([
    ['delete_everything', {}, 'undeclared_tool'],
    ['__proto__', {}, 'undeclared_tool'],
    ['terminal', {}, 'arguments_invalid'],
    ['terminal', { command: ['x'] }, 'arguments_invalid'],
    ['terminal', { command: 'x', cwd: '/' }, 'arguments_invalid'],
    ['terminal', JSON.parse('{"command":"x","__proto__":{"reset":true}}'), 'arguments_invalid'],
    ['terminal', ['x'], 'arguments_not_an_object'],
    ['terminal', 'python3', 'arguments_not_an_object'],
    ['terminal', 7, 'arguments_not_an_object'],
    ['terminal', { command: 'x', is_input: true }, 'is_input'],
    ['terminal', { command: 'x', reset: true }, 'reset'],
    ['file_editor', { command: 'delete', path: 'a' }, 'arguments_invalid'],
    ['file_editor', { command: 'create', path: 'a' }, 'arguments_invalid'],
    ['file_editor', { command: 'str_replace', path: 'a', old_str: 'x' }, 'arguments_invalid'],
    ['file_editor', { command: 'view', path: 'a', view_range: [1] }, 'arguments_invalid'],
    ['file_editor', { path: 'a', old_str: 'x', file_text: 'y' }, 'arguments_invalid'],
    ['file_editor', { path: 'a', new_str: 'y' }, 'arguments_invalid'],
  ])('%s %j is not done: %s', (name, args, code) => {
    expect(call(name, args)).toBe(code);
  });

  test('only what asks for the forbidden is a denial', () => {
    const denied = (name: string, args: unknown): boolean => {
      const result = read(name, args);
      return !result.ok && result.denied;
    };
    expect(denied('terminal', { command: 'x', reset: true })).toBe(true);
    expect(denied('nothing', {})).toBe(false);
  });
});

describe('search, where it is offered', () => {
  const offered = [...usual, 'search'];
  test.each([
    ['search', { query: 'a b' }, { query: 'a b', path: null }],
    ['search', { query: ' x', path: '/workspace/src' }, { query: ' x', path: '/workspace/src' }],
    ['search', '{"query":"x\n"}', { query: 'x', path: null }],
    ['grep', { pattern: 'x', path: null, summary: 'why' }, { query: 'x', path: null }],
    ['functions.search_files', { search_term: 'x' }, { query: 'x', path: null }],
  ])('%s %j', (name, args, expected) => {
    expect(call(name, args, offered)).toEqual({ tool: 'search', ...expected });
  });

  test.each([
    ['no text', {}],
    ['a text that is none', { query: ['x'] }],
    ['two texts', { query: 'x', pattern: 'y' }],
    ['other rules of matching', { query: 'x', regex: true }],
    ['a path that is none', { query: 'x', path: 7 }],
  ])('with %s is not done', (_what, args) => {
    expect(call('search', args, offered)).toBe('arguments_invalid');
  });

  test('where it is not offered it is denied, by every name and with any arguments, and is in no list', () => {
    for (const [name, args] of [
      ['search', { query: 'x' }],
      ['grep', { pattern: 'x' }],
      ['search', 7],
    ] as const)
      expect(read(name, args)).toMatchObject({ ok: false, denied: true, code: 'tool_not_allowed' });
    expect(read('nothing', {})).toMatchObject({ denied: false, text: expect.not.stringContaining('search') });
    expect(read('nothing', {}, offered)).toMatchObject({ text: expect.stringContaining('think, search.') });
  });
});

describe('calls printed as text', () => {
  test.each([
    ['<tool_call>\n{"name":"terminal","arguments":{"command":"x"}}\n</tool_call>', 1],
    ['Now:\n```json\n{"name":"finish","arguments":{"message":"ok"}}\n```', 1],
    ['{"name":"bash","parameters":{"command":"x"}}', 1],
    [
      '<tool_call>{"name":"terminal","arguments":{"command":"a"}}</tool_call><tool_call>{"name":"terminal","arguments":{"command":"a"}}</tool_call>',
      2,
    ],
    ['The terminal tool takes {"command": "x"}.', 0],
    ['```json\n{"name":"value","count":2}\n```', 0],
    ['I am done.', 0],
    ['Fences are ``` so: ```json\n{"name":"finish","arguments":{}}\n```', 1],
    ['<|python_tag|>{"name":"finish","parameters":{}} .', 1],
    ['```tool_call\n{"name":"finish","arguments":{}}```', 1],
  ])('%s', (content, count) => {
    expect(callsInText(content, usual)).toHaveLength(count);
  });

  test('a tool that was not offered is no call in a text', () => {
    const printed = '```json\n{"name":"search","arguments":{"query":"x"}}\n```';
    expect(callsInText(printed, usual)).toEqual([]);
    expect(callsInText(printed, [...usual, 'search'])).toHaveLength(1);
  });

  test('marks without end are read in one pass: megabytes of them hold nobody up', () => {
    for (const mark of ['<tool_call>{', '```{ ', '<|python_tag|>{'])
      expect(callsInText(mark.repeat(200_000), usual)).toHaveLength(0);
  });
});
