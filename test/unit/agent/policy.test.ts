import { describe, expect, test } from 'vitest';
import { decideTerminal } from '../../../src/server/agent/policy.ts';
import { listFolder, namePath, visiblePaths } from '../../../src/server/agent/workspace-path.ts';
import { frozenContract } from '../../fixtures/frozen-contract.ts';

const contract = frozenContract({
  readable: ['src/usage.py', 'tests/test_usage.py', '.hidden/x.py', 'docs/deep/er/est.md'],
  writable: [{ path: 'src/usage.py' }, { path: 'src/new.py', exists: false }],
  checks: [
    { id: 'unit', argv: ['python3', '-m', 'unittest', 'tests.test_usage'] },
    { id: 'odd', argv: ['python3', 'run.py', 'two words'] },
    { id: 'secret', kind: 'supplemental', argv: ['python3', 'acceptance/secret_check.py'] },
  ],
});

describe('terminal policy', () => {
  test.each([
    ['python3 -m unittest tests.test_usage', 'unit'],
    ['python3 -m "unittest" tests.test_usage', 'unit'],
    ["python3 run.py 'two words'", 'odd'],
  ])('%s runs %s', (command, id) => {
    const decision = decideTerminal(command, contract);
    expect(decision.kind === 'run' && decision.check.id).toBe(id);
  });

  test.each([
    ['python3 -m unittest', 'not_declared'],
    ['python3 -m unittest tests.test_usage -v', 'not_declared'],
    ['python -m unittest tests.test_usage', 'not_declared'],
    ['python3 run.py two words', 'not_declared'],
    ['python3 acceptance/secret_check.py', 'not_declared'],
    ['cat -n src/usage.py', 'not_declared'],
    ['cat src/usage.py tests/test_usage.py', 'not_declared'],
    ['ls', 'not_declared'],
    ['cd /workspace && python3 -m unittest tests.test_usage', 'chaining'],
    ['TZ=UTC python3 -m unittest tests.test_usage', 'assignment'],
    ['python3 -m unittest tests.test_usage 2>&1', 'redirection'],
    ['python3 -m unittest tests.*', 'glob'],
  ])('%s is denied: %s', (command, code) => {
    const decision = decideTerminal(command, contract);
    expect(decision.kind === 'denied' && decision.code).toBe(code);
  });

  test('a denial lists what is allowed, and nothing of the supplemental checks', () => {
    const decision = decideTerminal('rm -rf /', contract);
    const text = decision.kind === 'denied' ? decision.text : '';
    expect(text).toContain('- python3 -m unittest tests.test_usage');
    expect(text).toContain("- python3 run.py 'two words'");
    expect(text).not.toContain('secret');
  });

  test('a denial names search only where the contract has it', () => {
    const said = (tools: 'search'[]): string => {
      const decision = decideTerminal('grep -rn x src', { ...contract, tools });
      return decision.kind === 'denied' ? decision.text : '';
    };
    expect(said([])).not.toContain('search');
    expect(said(['search'])).toContain('texts found with search');
  });

  test('cat PATH is a read', () => {
    expect(decideTerminal('cat src/usage.py', contract)).toEqual({ kind: 'read', path: 'src/usage.py' });
  });
});

describe('paths that a model names', () => {
  test.each([
    ['/workspace/src/usage.py', 'src/usage.py', true],
    ['src/usage.py', 'src/usage.py', true],
    ['./src/usage.py', 'src/usage.py', true],
    ['/workspace//src/usage.py', 'src/usage.py', true],
    ['tests/test_usage.py', 'tests/test_usage.py', false],
    ['/workspace/src/new.py', 'src/new.py', true],
  ])('%s', (raw, path, writable) => {
    expect(namePath(raw, contract)).toEqual({ kind: 'file', path, writable });
  });

  test.each([
    ['/workspace', ''],
    ['/workspace/', ''],
    ['.', ''],
    ['src', 'src'],
    ['/workspace/docs/deep/', 'docs/deep'],
  ])('%s is a folder', (raw, path) => {
    expect(namePath(raw, contract)).toEqual({ kind: 'folder', path });
  });

  test.each([
    ['/src/usage.py', '/workspace/src/usage.py'],
    ['usage.py', '/workspace/src/usage.py'],
    ['/workspace/../workspace/src/usage.py', '/workspace/src/usage.py'],
    ['src/../src/usage.py', '/workspace/src/usage.py'],
    ['/etc/passwd', null],
    ['/workspace/src/other.py', null],
    ['/', null],
    ['', ''],
  ])('%s is not declared', (raw, suggestion) => {
    const named = namePath(raw, contract);
    if (raw === '') expect(named.kind).toBe('folder');
    else expect(named).toEqual({ kind: 'undeclared', suggestion });
  });

  test('a listing shows two levels; hidden entries are counted only', () => {
    const text = listFolder('', visiblePaths(contract));
    expect(text.split('\n').slice(1)).toEqual([
      '/workspace/docs/',
      '/workspace/docs/deep/',
      '/workspace/src/',
      '/workspace/src/new.py',
      '/workspace/src/usage.py',
      '/workspace/tests/',
      '/workspace/tests/test_usage.py',
      '(1 hidden, not listed)',
    ]);
  });
});
