import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { root } from '../../../scripts/lib/root.ts';
import { failuresOf } from '../../../scripts/lib/vitest.ts';

const file = (name: string): string => path.join(root, 'test', 'unit', name);

describe('what failed is said again at the end of a run', () => {
  it('a failed test with its file, its whole title and the beginning of its message', () => {
    const message = ['AssertionError: expected 1 to be 2', ...Array.from({ length: 40 }, (_, n) => `line ${n}`)].join(
      '\n',
    );
    const [line, ...rest] = failuresOf({
      testResults: [
        {
          name: file('a.test.ts'),
          status: 'failed',
          assertionResults: [
            { fullName: 'a thing works', status: 'passed', failureMessages: [] },
            { fullName: 'a thing breaks', status: 'failed', failureMessages: [message] },
          ],
        },
      ],
    });
    expect(rest).toEqual([]);
    expect(line).toMatch(/^test\/unit\/a\.test\.ts › a thing breaks\n {4}AssertionError: expected 1 to be 2\n/u);
    expect(line).not.toContain('line 39');
  });

  it('a file that could not be loaded, which has no tests', () => {
    expect(
      failuresOf({
        testResults: [
          { name: file('b.test.ts'), status: 'failed', message: 'Cannot find module', assertionResults: [] },
        ],
      }),
    ).toEqual(['test/unit/b.test.ts\n    Cannot find module']);
  });

  it('nothing of what passed', () => {
    expect(failuresOf({ testResults: [{ name: file('c.test.ts'), status: 'passed', assertionResults: [] }] })).toEqual(
      [],
    );
  });
});
