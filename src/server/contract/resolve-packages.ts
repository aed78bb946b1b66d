import type { JSONPath } from 'jsonc-parser';
import type { ContractSource, FrozenContract } from '../../protocol/contract.ts';
import { parseRelPath } from '../../protocol/paths.ts';
import type { RelPath } from '../../protocol/primitives.ts';
import { refusalOf, type TreeFacts } from './file-refusal.ts';
import type { Remarks } from './remarks.ts';
import { shownPath } from './shown-path.ts';

/** Files that the image is made from; what is in them is looked at when the contract is frozen. */
export interface ResolvedPackages {
  readonly npm: { readonly lock: RelPath; readonly manifest: RelPath } | null;
  readonly python: { readonly lock: RelPath; readonly sources: readonly string[] } | null;
  /** A devcontainer.json of which only `image` is read. */
  readonly devcontainer: RelPath | null;
}

/** Paths that `image` names: the lock files, the manifest beside npm's, a devcontainer.json. */
export function imageFiles(source: ContractSource): readonly string[] {
  const { base, dependencies } = source.image;
  const npm = dependencies?.npm;
  return [
    ...(npm === undefined ? [] : [npm, manifestBeside(npm)]),
    ...(dependencies?.python === undefined ? [] : [dependencies.python.lock]),
    ...(base !== undefined && namesDevcontainer(base) ? [base] : []),
  ];
}

function manifestBeside(lock: string): string {
  return `${lock.slice(0, lock.lastIndexOf('/') + 1)}package.json`;
}

/** A base that is read from a devcontainer.json instead of being one. */
function namesDevcontainer(base: string): boolean {
  return /(?:^|\/)\.?devcontainer\.json$/.test(base);
}

/** Of an image as an engine takes it: a name, with a tag or a digest. */
export const imageReference =
  /^[a-z0-9][\w.-]*(?::\d+)?(?:\/[a-z0-9][\w.-]*)*(?::[\w][\w.-]*)?(?:@sha256:[0-9a-f]{64})?$/i;

/** Applies the rules about what the image is made from. Pure; nothing of the files is read yet. */
export function resolvePackages(
  source: ContractSource,
  snapshot: readonly RelPath[],
  writable: FrozenContract['writable'],
  facts: TreeFacts,
  { error, warning }: Remarks,
): ResolvedPackages {
  const { base, dependencies } = source.image;
  const take = (path: string, at: JSONPath): RelPath | null => {
    const refusal = refusalOf(path, facts);
    if (refusal !== undefined) {
      error(refusal.code, refusal.message, at);
      return null;
    }
    if (writable.some((entry) => entry.path === path)) {
      warning('packages-fixed', `${shownPath(path)} is writable, but the image keeps the packages of the freeze.`, at);
    }
    return path as RelPath;
  };
  let devcontainer: RelPath | null = null;
  if (base !== undefined) {
    if (namesDevcontainer(base)) devcontainer = take(base, ['image', 'base']);
    else if (!imageReference.test(base))
      error('bad-image', `${shownPath(base)} is no name of an image.`, ['image', 'base']);
  }
  let npm: ResolvedPackages['npm'] = null;
  if (dependencies?.npm !== undefined) {
    const at: JSONPath = ['image', 'dependencies', 'npm'];
    if (!/(?:^|\/)package-lock\.json$/.test(dependencies.npm)) {
      error('bad-lock', 'Packages of npm come from a file package-lock.json.', at);
    } else {
      const lock = take(dependencies.npm, at);
      const manifest = take(manifestBeside(dependencies.npm), at);
      if (lock !== null && manifest !== null) npm = { lock, manifest };
      const clash = [...snapshot, ...writable.map((w) => w.path)].find((path) =>
        /(?:^|\/)node_modules(?:\/|$)/.test(path),
      );
      if (clash !== undefined) {
        error('packages-overlap', `${shownPath(clash)} lies where the image's packages are linked.`, at);
      }
    }
  }
  let python: ResolvedPackages['python'] = null;
  if (dependencies?.python !== undefined) {
    const { lock: path, sources } = dependencies.python;
    const lock = take(path, ['image', 'dependencies', 'python']);
    const folder = path.slice(0, Math.max(0, path.lastIndexOf('/')));
    const inSrc = `${folder === '' ? '' : `${folder}/`}src`;
    const found = snapshot.some((file) => file.startsWith(`${inSrc}/`) && file.endsWith('.py'));
    sources?.forEach((text, n) => {
      if (text !== '.' && !parseRelPath(text).ok) {
        error('unsafe-path', `${shownPath(text)} is no folder of the repository.`, [
          'image',
          'dependencies',
          'python',
          'sources',
          n,
        ]);
      }
    });
    if (lock !== null) {
      python = { lock, sources: sources ?? [folder === '' ? '.' : folder, ...(found ? [inSrc] : [])] };
    }
  }
  return { npm, python, devcontainer };
}
