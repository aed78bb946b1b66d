import { expect, test } from 'vitest';
import { integrationReasonWords, pendingWords } from '../../../src/extension/trees/words.ts';
import { words } from '../../fixtures/window-state.ts';

test('why files were not written is said in words, and what the system said of a file as it is', () => {
  for (const code of ['UnsavedChanges', 'BaseChanged', 'UnsafePath', 'StorageFull', 'StorageUnwritable', 'internal']) {
    expect(integrationReasonWords(code, words.t)).not.toMatch(/[a-z][A-Z]|internal/);
  }
  expect(integrationReasonWords('src/my-file.py could not be put back', words.t)).toContain('my-file.py');
  expect(integrationReasonWords('of_tomorrow', words.t)).toBe('of tomorrow');
});

test('what would show that a sandbox has ended is said without what a program said', () => {
  expect(pendingWords('container_engine: connect ENOENT /x', words.t)).toBe('waits for the container engine to answer');
  expect(pendingWords('container is running', words.t)).toContain('it was seen running');
});
