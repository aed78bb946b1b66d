import type { ContractSource } from '../../protocol/contract.ts';
import type { RelPath } from '../../protocol/primitives.ts';
import type { Remarks } from './remarks.ts';
import { isName, matcher } from './select-files.ts';
import { shownPath } from './shown-path.ts';
import { filesNamedBy, isTestFile } from './test-files.ts';

/** Why a file is protected: the contract says so, a check names it, or it is a test. */
type ProtectedRule = 'contract' | 'acceptance' | 'test';

/** Files of the snapshot that are put back before verification, and why each is. Pure. */
export function resolveProtected(
  source: ContractSource,
  snapshot: readonly RelPath[],
  tracked: ReadonlySet<string>,
  { error, warning }: Remarks,
): ReadonlyMap<RelPath, ProtectedRule> {
  const found = new Map<RelPath, ProtectedRule>();
  if (source.protected === undefined) {
    for (const path of snapshot) if (isTestFile(path)) found.set(path, 'test');
    for (const check of source.acceptance) {
      for (const path of filesNamedBy(check.argv, snapshot)) {
        // A folder such as `.` or `src` names everything in it; only what is a file or a test of it is meant.
        if (check.argv.some((argument) => namesFolderOf(argument, path)) && !isTestFile(path)) continue;
        found.set(path as RelPath, 'acceptance');
      }
    }
    return found;
  }
  source.protected.forEach((pattern, n) => {
    const matches = matcher(pattern, tracked);
    const hits = snapshot.filter(matches);
    for (const path of hits) found.set(path, 'contract');
    if (hits.length > 0) return;
    if (isName(pattern, tracked)) {
      error('not-in-snapshot', `${shownPath(pattern)} is not in the snapshot.`, ['protected', n]);
    } else warning('no-match', `${shownPath(pattern)} matches no file of the snapshot.`, ['protected', n]);
  });
  return found;
}

function namesFolderOf(argument: string, path: string): boolean {
  const folder = argument.replace(/^(?:\.\/)+/, '').replace(/\/+$/, '');
  return folder !== '' && path.startsWith(`${folder}/`);
}

/** Why a path would be protected if it were there: a file that does not exist yet can be a test, too. */
export function protectedRule(
  source: ContractSource,
  path: string,
  tracked: ReadonlySet<string>,
): ProtectedRule | undefined {
  if (source.protected !== undefined) {
    return source.protected.some((pattern) => matcher(pattern, tracked)(path)) ? 'contract' : undefined;
  }
  if (
    source.acceptance.some(
      (check) => filesNamedBy(check.argv, [path]).length > 0 && !check.argv.some((a) => namesFolderOf(a, path)),
    )
  ) {
    return 'acceptance';
  }
  return isTestFile(path) ? 'test' : undefined;
}
