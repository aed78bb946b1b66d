import { describe, expect, test } from 'vitest';
import { CandidateDigest, RelPath, SessionId, Sha256 } from '../../../src/protocol/primitives.ts';
import {
  formatArtefactUri,
  formatWorkspaceUri,
  parseArtefactUri,
  parseWorkspaceUri,
  type ArtefactUri,
} from '../../../src/extension/uris.ts';

const session = SessionId.parse('ses_0123456789abcdef');
const candidate = CandidateDigest.parse('a'.repeat(64));
const sha256 = Sha256.parse('b'.repeat(64));

describe('artefact URIs', () => {
  test.each<ArtefactUri>([
    { kind: 'candidate', session, candidate, side: 'after', path: 'src/a b.py', sha256, size: 12 },
    { kind: 'candidate', session, candidate, side: 'before', path: 'ünï/#?.txt', sha256, size: 0 },
    { kind: 'output', path: 'utc.log', sha256, size: 4096 },
  ])('%o', (uri) => {
    expect(parseArtefactUri(formatArtefactUri(uri))).toEqual(uri);
  });

  test.each([
    ['another scheme', { scheme: 'file', authority: '', path: '/x', query: `sha256=${sha256}&size=1` }],
    ['no hash', { scheme: 'escrow-artefact', authority: '', path: '/x', query: 'size=1' }],
    ['a hash that is none', { scheme: 'escrow-artefact', authority: '', path: '/x', query: 'sha256=../../x&size=1' }],
    [
      'a size that is none',
      { scheme: 'escrow-artefact', authority: '', path: '/x', query: `sha256=${sha256}&size=-1` },
    ],
    [
      'a candidate without a side',
      {
        scheme: 'escrow-artefact',
        authority: '',
        path: '/x',
        query: `sha256=${sha256}&size=1&session=${session}&candidate=${candidate}`,
      },
    ],
  ])('%s is not one of ours', (_, uri) => {
    expect(parseArtefactUri(uri)).toBeUndefined();
  });
});

describe('workspace URIs', () => {
  test('name a session and a file in it', () => {
    const path = RelPath.parse('src/usage.py');
    expect(parseWorkspaceUri(formatWorkspaceUri({ session, path }))).toEqual({ session, path });
  });

  test('the root of a session is a folder', () => {
    expect(parseWorkspaceUri({ scheme: 'escrow', authority: session, path: '/', query: '' })).toEqual({
      session,
      path: null,
    });
  });

  test('anything else is not one of ours', () => {
    expect(parseWorkspaceUri({ scheme: 'escrow', authority: '', path: '/etc/passwd', query: '' })).toBeUndefined();
    expect(parseWorkspaceUri({ scheme: 'file', authority: session, path: '/x', query: '' })).toBeUndefined();
  });
});
