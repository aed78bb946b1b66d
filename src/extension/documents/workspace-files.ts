import * as vscode from 'vscode';
import type { RelPath, SessionId } from '../../protocol/primitives.ts';
import { EscrowError } from '../../protocol/errors.ts';
import type { KernelLink } from '../kernel/kernel-link.ts';
import { workspaceScheme } from '../ids.ts';
import { formatWorkspaceUri, parseWorkspaceUri } from '../uris.ts';

interface Seen {
  readonly sha256: string;
  readonly bytes: Uint8Array;
  /** Rises when the bytes change: VS Code compares it to see whether an open document is behind. */
  readonly mtime: number;
}

/**
 * The Kernel-owned workspace of a session as read-only files: the sandbox's live bytes while an attempt runs, else what
 * was collected, else the snapshot. Each read goes through the executor and is audited as a person's.
 */
export class WorkspaceFiles implements vscode.FileSystemProvider {
  readonly #link: KernelLink;
  readonly #now: () => number;
  readonly #changed = new vscode.EventEmitter<vscode.FileChangeEvent[]>();
  readonly onDidChangeFile = this.#changed.event;
  readonly #seen = new Map<string, Seen>();
  /** URIs that somebody looks at, with how often: what was seen of others is forgotten. */
  readonly #watched = new Map<string, number>();

  constructor(link: KernelLink, now: () => number) {
    this.#link = link;
    this.#now = now;
  }

  /** Something happened in the session: the documents on screen are read again and change when their bytes did. */
  async sessionChanged(session: SessionId): Promise<void> {
    const open = vscode.workspace.textDocuments.filter((document) => {
      const parsed = document.uri.scheme === workspaceScheme ? parseWorkspaceUri(document.uri) : undefined;
      return parsed?.session === session;
    });
    for (const document of open) {
      const before = this.#seen.get(document.uri.toString())?.sha256;
      try {
        const after = await this.#read(document.uri);
        if (after.sha256 !== before) this.#changed.fire([{ type: vscode.FileChangeType.Changed, uri: document.uri }]);
      } catch (error) {
        // Gone or not reachable now: the editor keeps what it showed; the tree says from when that is.
        if (!EscrowError.is(error) && !(error instanceof vscode.FileSystemError)) throw error;
      }
    }
  }

  watch(uri: vscode.Uri): vscode.Disposable {
    this.#watched.set(uri.toString(), (this.#watched.get(uri.toString()) ?? 0) + 1);
    return {
      dispose: () => {
        const left = (this.#watched.get(uri.toString()) ?? 1) - 1;
        if (left > 0) {
          this.#watched.set(uri.toString(), left);
          return;
        }
        this.#watched.delete(uri.toString());
        this.#seen.delete(uri.toString());
      },
    };
  }

  async stat(uri: vscode.Uri): Promise<vscode.FileStat> {
    const parsed = parseWorkspaceUri(uri);
    if (parsed === undefined) throw vscode.FileSystemError.FileNotFound(uri);
    if (parsed.path === null) return { type: vscode.FileType.Directory, ctime: 0, mtime: 0, size: 0 };
    const seen = this.#seen.get(uri.toString()) ?? (await this.#read(uri));
    return {
      type: vscode.FileType.File,
      ctime: 0,
      mtime: seen.mtime,
      size: seen.bytes.length,
      permissions: vscode.FilePermission.Readonly,
    };
  }

  async readFile(uri: vscode.Uri): Promise<Uint8Array> {
    return (await this.#read(uri)).bytes;
  }

  async readDirectory(uri: vscode.Uri): Promise<[string, vscode.FileType][]> {
    const parsed = parseWorkspaceUri(uri);
    if (parsed === undefined) throw vscode.FileSystemError.FileNotFound(uri);
    const { files } = await this.#request(uri, () => this.#link.request('workspace/list', { session: parsed.session }));
    const prefix = parsed.path === null ? '' : `${parsed.path}/`;
    const entries = new Map<string, vscode.FileType>();
    for (const file of files) {
      if (!file.path.startsWith(prefix)) continue;
      const [name = '', ...rest] = file.path.slice(prefix.length).split('/');
      entries.set(name, rest.length === 0 ? vscode.FileType.File : vscode.FileType.Directory);
    }
    return [...entries];
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
    this.#changed.dispose();
    this.#seen.clear();
  }

  async #read(uri: vscode.Uri): Promise<Seen> {
    const parsed = parseWorkspaceUri(uri);
    if (parsed === undefined || parsed.path === null) throw vscode.FileSystemError.FileNotFound(uri);
    const { session, path } = parsed;
    const answer = await this.#request(uri, () => this.#link.request('workspace/read', { session, path }));
    const before = this.#seen.get(uri.toString());
    if (before?.sha256 === answer.sha256) return before;
    const seen: Seen = {
      sha256: answer.sha256,
      bytes: Buffer.from(answer.base64, 'base64'),
      mtime: Math.max(this.#now(), (before?.mtime ?? 0) + 1),
    };
    this.#seen.set(uri.toString(), seen);
    return seen;
  }

  async #request<T>(uri: vscode.Uri, ask: () => Promise<T>): Promise<T> {
    try {
      return await ask();
    } catch (error) {
      if (EscrowError.is(error, 'NotFound')) throw vscode.FileSystemError.FileNotFound(uri);
      throw vscode.FileSystemError.Unavailable(error instanceof Error ? error.message : String(error));
    }
  }
}

/** The URI under which a file of a session's workspace is opened. */
export function workspaceUri(session: SessionId, path: RelPath): vscode.Uri {
  return vscode.Uri.from(formatWorkspaceUri({ session, path }));
}
