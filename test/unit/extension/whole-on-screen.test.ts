import { expect, test } from 'vitest';
import { CandidateDigest, RelPath, SessionId, Sha256 } from '../../../src/protocol/primitives.ts';
import type { CandidateFile } from '../../../src/protocol/views.ts';
import { wholeOnScreen } from '../../../src/extension/review/whole-on-screen.ts';
import { emptySha256, type ArtefactUri } from '../../../src/extension/uris.ts';

const old = { sha256: Sha256.parse('a'.repeat(64)), size: 3 };
const made = { sha256: Sha256.parse('b'.repeat(64)), size: 4 };
const path = RelPath.parse('src/a.py');
const modified: CandidateFile = {
  path,
  change: 'modified',
  before: old,
  after: made,
  beforeMode: 0o644,
  afterMode: 0o644,
};

const uri = (side: 'before' | 'after', artefact: typeof old, name: string = path): ArtefactUri => ({
  kind: 'candidate',
  session: SessionId.parse('ses_0123456789abcdef'),
  candidate: CandidateDigest.parse('c'.repeat(64)),
  side,
  path: name,
  ...artefact,
});

test('both sides of a change, or the one side that there is', () => {
  expect(wholeOnScreen([modified], [uri('before', old), uri('after', made)])).toBe(true);
  expect(wholeOnScreen([{ ...modified, change: 'added', before: null }], [uri('after', made)])).toBe(true);
  expect(wholeOnScreen([{ ...modified, change: 'deleted', after: null }], [uri('before', old)])).toBe(true);
});

test('a side that is not there is compared with nothing, or not shown; never with other bytes', () => {
  const added: CandidateFile = { ...modified, change: 'added', before: null };
  const empty = { sha256: emptySha256, size: 0 };
  expect(wholeOnScreen([added], [uri('before', empty), uri('after', made)])).toBe(true);
  expect(wholeOnScreen([added], [uri('before', made), uri('after', made)])).toBe(false);
});

test.each([
  ['the snapshot alone', [uri('before', old)]],
  ['the candidate alone, without what it changes', [uri('after', made)]],
  ['other bytes under its path', [uri('before', old), uri('after', old)]],
  ['only the beginning of its bytes', [uri('before', old), uri('after', { ...made, size: 2 })]],
  ['another file', [uri('before', old, 'src/b.py'), uri('after', made, 'src/b.py')]],
  ['nothing', []],
])('%s is not the candidate', (_, shown) => {
  expect(wholeOnScreen([modified], shown)).toBe(false);
});

test('every file of it', () => {
  const second = { ...modified, path: RelPath.parse('src/b.py') };
  expect(wholeOnScreen([modified, second], [uri('before', old), uri('after', made)])).toBe(false);
});
