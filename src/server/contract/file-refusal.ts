import { parseRelPath } from '../../protocol/paths.ts';
import { looksSecret } from '../../protocol/sensitive-paths.ts';
import { closestWord } from '../../protocol/closest-word.ts';
import type { FileOutline } from './file-outlines.ts';
import type { TrackedFile } from './git-files.ts';
import type { TreeEntry, TreeFileFault } from './read-tree-file.ts';
import { shownPath } from './shown-path.ts';

/** What was seen of the tree: tracked paths, a look at each selected path, and which untracked ones git ignores. */
export interface TreeFacts {
  /** By path. */
  readonly tracked: ReadonlyMap<string, TrackedFile>;
  readonly entries: ReadonlyMap<string, TreeEntry>;
  readonly ignored: ReadonlySet<string>;
  /** What can be named in the files of which the contract names symbols. */
  readonly outlines: ReadonlyMap<string, FileOutline>;
  /** The tracked path that a wrong one most likely meant. */
  readonly near: (path: string) => string | undefined;
}

/** Each look goes over every tracked path, and whoever has eight names wrong can do without a ninth proposal. */
const mostProposals = 8;

/** For `TreeFacts.near`: proposals from these paths, a few of them. */
export function proposalsFrom(tracked: Iterable<string>): TreeFacts['near'] {
  const known = [...tracked];
  let left = mostProposals;
  return (path) => {
    if (left === 0) return undefined;
    left -= 1;
    return closestWord(path, known);
  };
}

/** What is wrong with a path that can't be used, by the reason of `parseRelPath`. */
const faultText: Readonly<Record<string, string>> = {
  empty: 'it is empty',
  'too-long': 'it is too long',
  malformed: 'it is not well-formed text',
  'control-character': 'it holds a control character',
  'invisible-character': 'it holds a character that draws nothing or turns the text around',
  backslash: 'folders are separated by /',
  absolute: 'it must be relative to the repository',
  'not-nfc': 'it is not in Unicode normal form C',
  'empty-segment': 'a folder name is empty (a slash too many?)',
  'dot-segment': 'a part of it is "." or ".."',
  'segment-too-long': 'a name in it is too long',
  'trailing-dot-or-space': 'a name in it ends with a dot or a space',
  'device-name': 'Windows takes a name in it for a device',
  'git-folder': "git's own folder is never touched",
};

const entryText: Readonly<Record<TreeFileFault, string>> = {
  missing: 'there is no such file',
  link: 'it is a symbolic link',
  'parent-link': 'it lies behind a symbolic link',
  'parent-file': 'a folder of it is a file',
  folder: 'it is a folder; write it as "folder/**"',
  'not-regular': 'it is a pipe, a socket or a device',
  'too-large': 'it is too large',
  unreadable: 'it cannot be read',
  changing: 'it changes while it is read',
};

/** One fault of a file of the tree, for the error that ends a freeze. */
export function entryFaultText(fault: TreeFileFault): string {
  return entryText[fault];
}

/** Why a path may not be taken. */
interface Refusal {
  readonly code: string;
  readonly message: string;
}

/** That a path can't be used at all; `reason` is that of `parseRelPath`. */
export function unsafePath(path: string, reason: string): Refusal {
  return { code: 'unsafe-path', message: `${shownPath(path)} can't be used: ${faultText[reason] ?? reason}.` };
}

/** That a path is, or lies in, a repository inside this one, as far as git tracks it; undefined where it is not. */
export function otherRepository(path: string, facts: TreeFacts): Refusal | undefined {
  const segments = path.split('/');
  for (let n = segments.length; n > 0; n -= 1) {
    const outer = segments.slice(0, n).join('/');
    if (facts.tracked.get(outer)?.kind !== 'submodule') continue;
    const what = outer === path ? 'is' : `lies in ${shownPath(outer)}, which is`;
    return { code: 'submodule', message: `${shownPath(path)} ${what} another repository.` };
  }
  return undefined;
}

/** Why a file may not be taken into a contract, or undefined where it may. Pure. */
export function refusalOf(path: string, facts: TreeFacts): Refusal | undefined {
  const name = shownPath(path);
  const parsed = parseRelPath(path);
  if (!parsed.ok) return unsafePath(path, parsed.reason);
  const tracked = facts.tracked.get(path);
  if (tracked?.kind === 'link') return { code: 'link', message: `${name} can't be used: ${entryText.link}.` };
  const other = otherRepository(path, facts);
  if (other !== undefined) return other;
  if (looksSecret(path)) return { code: 'secret', message: `${name} is named like a file that holds a secret.` };
  if (facts.ignored.has(path)) return { code: 'ignored', message: `${name} is ignored by git.` };
  const entry = facts.entries.get(path);
  if (tracked !== undefined && entry?.ok === false && entry.fault === 'missing') {
    return {
      code: 'absent',
      message: `${name} is tracked, but not in the working tree: deleted, or left out by a sparse checkout.`,
    };
  }
  if (entry === undefined || (!entry.ok && entry.fault === 'missing')) {
    const near = facts.near(path);
    const hint = near === undefined ? '' : ` Did you mean ${shownPath(near)}?`;
    return { code: 'unknown-path', message: `${name}: ${entryText.missing}.${hint}` };
  }
  if (!entry.ok) return { code: entry.fault, message: `${name} can't be used: ${entryText[entry.fault]}.` };
  return undefined;
}
