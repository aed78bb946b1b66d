import { createHash } from 'node:crypto';
import * as vscode from 'vscode';
import type { Sha256 } from '../../protocol/primitives.ts';
import { emptySha256, parseArtefactUri } from '../uris.ts';
import type { KernelLink } from '../kernel/kernel-link.ts';

/** The most that one artefact may have to be shown in an editor. */
const largestShown = 32 * 1024 * 1024;
const chunk = 1_048_576;
/** Bytes are named by their hash: they never change, so the last ones are kept, at most so many of them. */
const keptBytes = 64 * 1024 * 1024;

/**
 * Reads an artefact whole. The Kernel re-hashes what it reads and refuses damaged bytes; what an editor shows is what a
 * person decides about, so it is hashed once more here.
 */
async function readArtefact(link: KernelLink, sha256: Sha256, size: number): Promise<Uint8Array> {
  // The side of a diff that is not there; nobody keeps it.
  if (size === 0 && sha256 === emptySha256) return new Uint8Array();
  const parts: Buffer[] = [];
  let offset = 0;
  do {
    const part = await link.request('artefact/read', { sha256, offset, length: chunk });
    const bytes = Buffer.from(part.base64, 'base64');
    parts.push(bytes);
    offset += bytes.length;
    if (bytes.length === 0) break;
  } while (offset < size);
  const bytes = Buffer.concat(parts);
  if (bytes.length !== size || createHash('sha256').update(bytes).digest('hex') !== sha256)
    throw new Error(vscode.l10n.t('The bytes that came are not the ones that were asked for.'));
  return bytes;
}

/**
 * The bytes that the Kernel keeps, as read-only files: both sides of a candidate's diff and the output of checks. A file
 * system rather than a content provider: the bytes reach the editor as they are, and a reload restores the diff.
 */
export class ArtefactFiles implements vscode.FileSystemProvider {
  readonly #link: KernelLink;
  readonly #cache = new Map<Sha256, { readonly size: number; readonly bytes: Promise<Uint8Array> }>();
  readonly #never = new vscode.EventEmitter<vscode.FileChangeEvent[]>();
  readonly onDidChangeFile = this.#never.event;

  constructor(link: KernelLink) {
    this.#link = link;
  }

  watch(): vscode.Disposable {
    return { dispose: () => undefined };
  }

  stat(uri: vscode.Uri): vscode.FileStat {
    const parsed = parseArtefactUri(uri);
    if (parsed === undefined) throw vscode.FileSystemError.FileNotFound(uri);
    return {
      type: vscode.FileType.File,
      ctime: 0,
      mtime: 0,
      size: parsed.size,
      permissions: vscode.FilePermission.Readonly,
    };
  }

  async readFile(uri: vscode.Uri): Promise<Uint8Array> {
    const parsed = parseArtefactUri(uri);
    if (parsed === undefined) throw vscode.FileSystemError.FileNotFound(uri);
    if (parsed.size > largestShown)
      throw vscode.FileSystemError.Unavailable(vscode.l10n.t('The file is too large to show.'));
    const { sha256, size } = parsed;
    let held = this.#cache.get(sha256);
    // A URI that names another size is about other bytes, which there are none of: asked for, it is refused.
    if (held?.size !== size) {
      held = { size, bytes: readArtefact(this.#link, sha256, size) };
      this.#cache.set(sha256, held);
      this.#makeRoom();
    }
    try {
      return await held.bytes;
    } catch (error) {
      // A failure is not a fact about the bytes: the next look asks again.
      if (this.#cache.get(sha256) === held) this.#cache.delete(sha256);
      throw vscode.FileSystemError.Unavailable(error instanceof Error ? error.message : String(error));
    }
  }

  /** The oldest go first; the one that was asked for last stays whatever its size. */
  #makeRoom(): void {
    let total = 0;
    for (const { size } of this.#cache.values()) total += size;
    for (const [oldest, { size }] of this.#cache) {
      if (total <= keptBytes || this.#cache.size === 1) return;
      this.#cache.delete(oldest);
      total -= size;
    }
  }

  readDirectory(uri: vscode.Uri): [string, vscode.FileType][] {
    throw vscode.FileSystemError.FileNotADirectory(uri);
  }

  createDirectory(uri: vscode.Uri): void {
    throw vscode.FileSystemError.NoPermissions(uri);
  }
  writeFile(uri: vscode.Uri): void {
    throw vscode.FileSystemError.NoPermissions(uri);
  }
  delete(uri: vscode.Uri): void {
    throw vscode.FileSystemError.NoPermissions(uri);
  }
  rename(uri: vscode.Uri): void {
    throw vscode.FileSystemError.NoPermissions(uri);
  }

  dispose(): void {
    this.#never.dispose();
    this.#cache.clear();
  }
}
