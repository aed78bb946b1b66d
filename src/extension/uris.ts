import { CandidateDigest, RelPath, SessionId, Sha256 } from '../protocol/primitives.ts';
import { sha256 as hashOf } from '../protocol/hash.ts';
import { artefactScheme, workspaceScheme } from './ids.ts';

/** What an empty file is called by. */
export const emptySha256: Sha256 = hashOf(new Uint8Array());

/** The parts of a URI that carry meaning here; `vscode.Uri` has them too. */
export interface UriParts {
  readonly scheme: string;
  readonly authority: string;
  readonly path: string;
  readonly query: string;
}

/** Bytes that the Kernel keeps, shown as a file: one side of a candidate's diff, or the output of a check. */
export type ArtefactUri =
  | {
      readonly kind: 'candidate';
      readonly session: SessionId;
      readonly candidate: CandidateDigest;
      readonly side: 'before' | 'after';
      readonly path: string;
      readonly sha256: Sha256;
      readonly size: number;
    }
  | { readonly kind: 'output'; readonly path: string; readonly sha256: Sha256; readonly size: number };

export interface WorkspaceUri {
  readonly session: SessionId;
  readonly path: RelPath;
}

/** `escrow-artefact:/src/usage.py?…`: the path is for people and for the language; the query names the bytes. */
export function formatArtefactUri(uri: ArtefactUri): UriParts {
  const query = new URLSearchParams({ sha256: uri.sha256, size: String(uri.size) });
  if (uri.kind === 'candidate') {
    query.set('session', uri.session);
    query.set('candidate', uri.candidate);
    query.set('side', uri.side);
  }
  return { scheme: artefactScheme, authority: '', path: `/${uri.path}`, query: query.toString() };
}

/** Undefined when it is not one of ours: such a URI may come from anywhere. */
export function parseArtefactUri(uri: UriParts): ArtefactUri | undefined {
  if (uri.scheme !== artefactScheme) return undefined;
  const query = new URLSearchParams(uri.query);
  const sha256 = Sha256.safeParse(query.get('sha256'));
  const size = Number(query.get('size') ?? Number.NaN);
  if (!sha256.success || !Number.isSafeInteger(size) || size < 0) return undefined;
  const shared = { path: uri.path.replace(/^\//, ''), sha256: sha256.data, size };
  if (!query.has('session')) return { kind: 'output', ...shared };
  const session = SessionId.safeParse(query.get('session'));
  const candidate = CandidateDigest.safeParse(query.get('candidate'));
  const side = query.get('side');
  if (!session.success || !candidate.success || (side !== 'before' && side !== 'after')) return undefined;
  return { kind: 'candidate', session: session.data, candidate: candidate.data, side, ...shared };
}

/**
 * `escrow://<session>/<path>`: the Kernel-owned workspace of a session, live while an attempt runs. The session is no
 * part of the path, which is what people read above an editor.
 */
export function formatWorkspaceUri(uri: WorkspaceUri): UriParts {
  return { scheme: workspaceScheme, authority: uri.session, path: `/${uri.path}`, query: '' };
}

/** Also for folders: `path` is null for the root of a session's workspace. */
export function parseWorkspaceUri(
  uri: UriParts,
): { readonly session: SessionId; readonly path: RelPath | null } | undefined {
  if (uri.scheme !== workspaceScheme) return undefined;
  const session = SessionId.safeParse(uri.authority);
  if (!session.success) return undefined;
  const rest = uri.path.replace(/^\//, '');
  if (rest === '') return { session: session.data, path: null };
  const path = RelPath.safeParse(rest.replace(/\/$/, ''));
  return path.success ? { session: session.data, path: path.data } : undefined;
}
