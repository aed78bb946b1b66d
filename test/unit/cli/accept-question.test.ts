import { expect, it } from 'vitest';
import { acceptQuestion } from '../../../src/cli/accept-question.ts';

it('names the files of which nothing was shown, and only where there are any', () => {
  expect(acceptQuestion('ab12', '/r', [])).toBe('Accept candidate ab12 and integrate it into /r?');
  expect(acceptQuestion('ab12', '/r', ['a\u202e.bin'])).toBe(
    '1 file is no text, and nothing of it was shown: a⟨U+202E⟩.bin. Accept candidate ab12 and integrate it into /r?',
  );
  const many = Array.from({ length: 7 }, (_, n) => `${n}.bin`);
  expect(acceptQuestion('ab12', '/r', many)).toMatch(
    /^7 files .*: 0\.bin, 1\.bin, 2\.bin, 3\.bin, 4\.bin and 2 more\. Accept/,
  );
});
