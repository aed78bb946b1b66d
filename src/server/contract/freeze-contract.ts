import { constants } from 'node:fs';
import { open, realpath } from 'node:fs/promises';
import { basename, dirname, join, relative, sep } from 'node:path';
import { FrozenContract } from '../../protocol/contract.ts';
import type { ContractDiagnostic, ContractSource } from '../../protocol/contract.ts';
import { EscrowError } from '../../protocol/errors.ts';
import { digestOf, sha256 } from '../../protocol/hash.ts';
import type { ContractDigest, FileEntry, RelPath, Sha256 } from '../../protocol/primitives.ts';
import { startsLikePrivateKey } from '../../protocol/sensitive-paths.ts';
import type { ScopeChecker } from '../scope/port.ts';
import { outlinesOf, type FileOutline } from './file-outlines.ts';
import { entryFaultText, proposalsFrom } from './file-refusal.ts';
import { ignoredFiles, repositoryRoot, trackedFiles } from './git-files.ts';
import { maxContractText, parseContract } from './parse-contract.ts';
import type { ParsedContract } from './parse-contract.ts';
import { readImageParts } from './image-parts.ts';
import { readTreeFiles, statTreeFiles } from './read-tree-file.ts';
import { pathsToLookAt, resolveContract } from './resolve-contract.ts';
import type { ResolvedContract } from './resolve-contract.ts';
import { selectFiles } from './select-files.ts';
import { shownPath } from './shown-path.ts';

/** A contract that can no longer change, with the bytes that it names. */
export interface Frozen {
  readonly contract: FrozenContract;
  readonly digest: ContractDigest;
  /** Real path of the working tree. */
  readonly root: string;
  /** Absolute path of the contract file. */
  readonly path: string;
  /** Of the contract's text as it was read. */
  readonly sourceSha256: Sha256;
  /** Bytes of `contract.files`. */
  readonly bytes: ReadonlyMap<RelPath, Uint8Array>;
  /** Bytes of `contract.supplementalFiles`: only ever for the verifier. */
  readonly supplementalBytes: ReadonlyMap<RelPath, Uint8Array>;
  /** Bytes of `contract.imageDependencies`: only ever for image preparation. */
  readonly imageBytes: ReadonlyMap<RelPath, Uint8Array>;
}

export interface Checked {
  /** Null when the file is in no repository (which is a diagnostic, too). */
  readonly root: string | null;
  readonly diagnostics: readonly ContractDiagnostic[];
}

/** Digest of a frozen contract's canonical JSON. */
export function contractDigest(contract: FrozenContract): ContractDigest {
  return digestOf(contract) as ContractDigest;
}

/**
 * All remarks on a contract; no file's bytes are read but the contract's own and those of files in which it names symbols.
 * `text` stands for an editor's unsaved text. Throws EscrowError NotFound when there is neither text nor a readable file.
 */
export async function checkContract(path: string, scope: ScopeChecker, text?: string): Promise<Checked> {
  const { checked } = await examine(path, scope, text);
  return checked;
}

/**
 * Takes the snapshot and spells every default out. Throws EscrowError InvalidContract (details: path and diagnostics),
 * NotAGitRepository, NotFound, or BaseChanged when files change while they are read.
 */
export async function freezeContract(path: string, scope: ScopeChecker, text?: string): Promise<Frozen> {
  const { checked, parsed, resolved, source, contractText, sizes, outlines } = await examine(path, scope, text);
  if (checked.root === null) await repositoryRoot(path);
  if (checked.root === null || resolved === null || parsed.source === null || source === null) {
    throw invalid(path, checked.diagnostics);
  }
  const { root } = checked;
  const late: ContractDiagnostic[] = [];
  const fault = (code: string, message: string): void => {
    late.push({ severity: 'error', code, message, ...parsed.locate(['snapshot']) });
  };
  const read = async (
    paths: readonly RelPath[],
  ): Promise<{ entries: FileEntry[]; bytes: Map<RelPath, Uint8Array> }> => {
    const files = await readTreeFiles(root, paths, (file) => sizes.get(file) ?? 0);
    const entries: FileEntry[] = [];
    const bytes = new Map<RelPath, Uint8Array>();
    for (const file of paths) {
      const found = files.get(file);
      if (found?.ok !== true) {
        // More bytes than a moment ago: it grows.
        const why = found === undefined || found.fault === 'too-large' ? 'changing' : found.fault;
        fault(why, `${shownPath(file)} can't be used: ${entryFaultText(why)}.`);
        continue;
      }
      if (startsLikePrivateKey(found.bytes)) {
        fault('secret', `${shownPath(file)} holds a private key. Leave it out with "snapshot.exclude".`);
        continue;
      }
      bytes.set(file, found.bytes);
      const digest = sha256(found.bytes);
      const outlined = outlines.get(file)?.sha256;
      // The symbols were found in other bytes than these.
      if (outlined !== undefined && outlined !== null && outlined !== digest) {
        fault('changing', `${shownPath(file)} can't be used: ${entryFaultText('changing')}.`);
        continue;
      }
      // As git does: only whether it is executable counts, so that the umask of a machine does not change the digest.
      const mode = found.executable ? 0o755 : 0o644;
      entries.push({ path: file, mode, size: found.bytes.byteLength, sha256: digest });
    }
    return { entries, bytes };
  };
  const snapshot = await read(resolved.snapshot);
  const supplemental = await read(resolved.supplemental);
  const image = await readImageParts(root, resolved.packages, (member, code, message) => {
    late.push({ severity: 'error', code, message, ...parsed.locate(['image', ...member]) });
  });
  if (late.length > 0) throw invalid(path, [...checked.diagnostics, ...late]);

  const contract = FrozenContract.parse({
    version: 1,
    title: source.title,
    instruction: source.instruction,
    files: snapshot.entries.map((entry) => ({ ...entry, protected: resolved.protected.has(entry.path) })),
    readable: resolved.readable,
    writable: resolved.writable,
    checks: resolved.checks,
    supplementalFiles: supplemental.entries,
    tools: source.tools,
    scratch: resolved.scratch,
    budget: source.budget,
    profile: source.profile,
    imageBase: resolved.packages.devcontainer === null ? (source.image.base ?? null) : image.base,
    // Left out where there are none, so that such a contract's digest is what it always was.
    ...(image.dependencies === null ? {} : { imageDependencies: image.dependencies }),
    ...(source.image.steps === undefined || source.image.steps.length === 0 ? {} : { imageSteps: source.image.steps }),
  } satisfies Omit<Record<keyof FrozenContract, unknown>, 'imageDependencies' | 'imageSteps'>);
  return {
    contract,
    digest: contractDigest(contract),
    root,
    path,
    sourceSha256: sha256(contractText),
    bytes: snapshot.bytes,
    supplementalBytes: supplemental.bytes,
    imageBytes: image.bytes,
  };
}

/** Paths that git tracks in the repository of a file, for completion. Empty where there is none. */
export async function trackedPathsFor(path: string): Promise<readonly string[]> {
  try {
    return (await trackedFiles(await repositoryRoot(path))).filter((f) => f.kind !== 'submodule').map((f) => f.path);
  } catch (error) {
    if (EscrowError.is(error)) return [];
    throw error;
  }
}

interface Examined {
  readonly checked: Checked;
  readonly parsed: ParsedContract;
  readonly resolved: ResolvedContract | null;
  readonly source: ContractSource | null;
  readonly contractText: string;
  /** Of each file that was looked at, bytes. */
  readonly sizes: ReadonlyMap<string, number>;
  readonly outlines: ReadonlyMap<string, FileOutline>;
}

async function examine(path: string, scope: ScopeChecker, text: string | undefined): Promise<Examined> {
  const contractText = text ?? (await readContractFile(path));
  // Editors strip a byte-order mark before they count; so do we.
  const parsed = parseContract(contractText.startsWith('\uFEFF') ? contractText.slice(1) : contractText);
  const { source } = parsed;
  const none = { parsed, resolved: null, source, contractText, sizes: new Map(), outlines: new Map() };
  let root: string;
  try {
    root = await repositoryRoot(path);
  } catch (error) {
    if (!EscrowError.is(error, 'NotAGitRepository')) throw error;
    const remark: ContractDiagnostic = {
      severity: 'error',
      code: 'not-a-repository',
      message: `${error.message}. ${error.next}`,
      ...parsed.locate([]),
    };
    const diagnostics = [...parsed.diagnostics, remark];
    return { ...none, checked: { root: null, diagnostics } };
  }
  if (source === null) {
    return { ...none, checked: { root, diagnostics: parsed.diagnostics } };
  }
  const tracked = await trackedFiles(root);
  const selection = selectFiles(source, tracked);
  // The contract names the hidden checks: it is never part of its own snapshot.
  const own = await ownPath(root, path);
  const snapshot = new Map([...selection.snapshot].filter(([file, how]) => how.origin === 'named' || file !== own));
  const withoutOwn = { ...selection, snapshot };
  const wanted = pathsToLookAt(source, withoutOwn);
  const entries = await statTreeFiles(root, wanted);
  const byPath = new Map(tracked.map((file) => [file.path, file]));
  const ignored = await ignoredFiles(
    root,
    // git refuses to look beyond a link; such paths are refused for that reason already.
    wanted.filter((file) => !byPath.has(file) && entries.get(file)?.ok === true),
  );
  const outlines = await outlinesOf(root, source, entries, scope);
  const { resolved, diagnostics } = resolveContract(
    source,
    parsed.locate,
    { tracked: byPath, entries, ignored, outlines, near: proposalsFrom(byPath.keys()) },
    withoutOwn,
  );
  return {
    checked: { root, diagnostics: [...parsed.diagnostics, ...diagnostics] },
    parsed,
    resolved,
    source,
    contractText,
    sizes: new Map([...entries].map(([file, entry]) => [file, entry.ok ? entry.size : 0])),
    outlines,
  };
}

async function ownPath(root: string, path: string): Promise<string> {
  const folder = await realpath(dirname(path)).catch(() => dirname(path));
  return relative(root, join(folder, basename(path)))
    .split(sep)
    .join('/');
}

async function readContractFile(path: string): Promise<string> {
  let file;
  try {
    // O_NONBLOCK: a pipe of that name must not hold the Kernel up.
    file = await open(path, constants.O_RDONLY | (constants.O_NONBLOCK ?? 0));
  } catch (error) {
    throw new EscrowError(
      'NotFound',
      `${path} cannot be read: ${(error as NodeJS.ErrnoException).code ?? ''}`,
      'Name a contract file that exists.',
      { path },
    );
  }
  try {
    const stat = await file.stat();
    // UTF-8 takes at most three bytes for one UTF-16 unit.
    if (!stat.isFile() || stat.size > maxContractText * 3) {
      throw new EscrowError('NotFound', `${path} is not a contract file`, 'Name a file *.contract.jsonc.', { path });
    }
    // A byte-order mark is left in: whoever hashes the text hashes all of it.
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(await file.readFile());
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    throw new EscrowError('InvalidContract', `${path} is not UTF-8 text`, 'Save it with the encoding UTF-8.', {
      path,
      diagnostics: [],
    });
  } finally {
    await file.close();
  }
}

function invalid(path: string, diagnostics: readonly ContractDiagnostic[]): EscrowError {
  const errors = diagnostics.filter((d) => d.severity === 'error');
  const first = errors[0];
  const more = errors.length > 1 ? ` (and ${errors.length - 1} more)` : '';
  return new EscrowError(
    'InvalidContract',
    `${basename(path)}: ${first?.message ?? 'not a valid contract'}${more}`,
    `Correct ${basename(path)} and freeze it again.`,
    { path, diagnostics },
  );
}
