import type { ScopeReason } from '../../protocol/contract.ts';
import { importsName } from './definition.ts';
import { definitionsOf } from './definitions.ts';
import { lineAt, type FlatTree } from './flat-tree.ts';
import { outsideOf, type Hole, type Outside, type OutsideToken } from './outside.ts';
import type { ScopeFault, ScopeLanguage, ScopeNames } from './port.ts';

/** Characters of a line that a fault shows. */
const shownLength = 120;

/**
 * Compares two versions of a file outside the named symbols: the same tokens, in the same order and the same structure,
 * with the same line breaks between them and, in Python, the same indentation. Null where they are. A symbol stays where it is (it may
 * be left out, and defined more or less often there); one that may be added stands in one place; imports stand where
 * imports were, or before the first statement. Pure.
 */
export function compareScope(
  before: FlatTree,
  after: FlatTree,
  language: ScopeLanguage,
  names: ScopeNames,
): ScopeFault | null {
  const all = new Set([...names.existing, ...names.added]);
  const old = outsideOf(before, language, definitionsOf(before, language), all);
  const now = outsideOf(after, language, definitionsOf(after, language), all);
  return differenceIn(before.text, after.text, old.tokens, now.tokens) ?? misplaced(after.text, old, now, names);
}

function differenceIn(
  before: string,
  after: string,
  old: readonly OutsideToken[],
  now: readonly OutsideToken[],
): ScopeFault | null {
  const same = (a: OutsideToken | undefined, b: OutsideToken | undefined): boolean =>
    a !== undefined && b !== undefined && a.text === b.text && a.comment === b.comment;
  const most = Math.min(old.length, now.length);
  let head = 0;
  while (head < most && same(old[head], now[head])) head += 1;
  if (head === old.length && head === now.length) return layoutIn(before, after, old, now);
  let tail = 0;
  while (tail < most - head && same(old.at(-1 - tail), now.at(-1 - tail))) tail += 1;
  const oldEnd = old.length - tail;
  const nowEnd = now.length - tail;
  const gone = oldEnd > head;
  const came = nowEnd > head;
  // What came into a line, or went out of it, has changed the line.
  if (came && !gone && (isWithinLine(after, now, head) || isWithinLine(after, now, nowEnd))) {
    const at = isWithinLine(after, now, head) ? head - 1 : head;
    return fault('changed', after, now[head]?.start ?? 0, lineOf(before, old[at]?.start ?? 0), true);
  }
  if (gone && !came && (isWithinLine(before, old, head) || isWithinLine(before, old, oldEnd))) {
    const at = isWithinLine(before, old, head) ? head - 1 : head;
    return fault('changed', after, now[at]?.start ?? 0, lineOf(before, old[head]?.start ?? 0), true);
  }
  return fault(
    gone && came ? 'changed' : came ? 'added' : 'removed',
    after,
    now[head]?.start ?? after.length,
    gone ? lineOf(before, old[head]?.start ?? 0) : null,
    came,
  );
}

/** True for a token that stands behind another of what is outside, on its line. */
function isWithinLine(text: string, tokens: readonly OutsideToken[], at: number): boolean {
  const [one, next] = [tokens[at - 1], tokens[at]];
  if (one === undefined || next === undefined || next.text === '') return false;
  return !text.slice(one.start + one.text.length, next.start).includes('\n');
}

function layoutIn(
  before: string,
  after: string,
  old: readonly OutsideToken[],
  now: readonly OutsideToken[],
): ScopeFault | null {
  const at = old.findIndex((token, n) => token.structure !== now[n]?.structure || token.gap !== now[n].gap);
  if (at === -1) return null;
  return fault('layout', after, now[at]?.start ?? 0, lineOf(before, old[at]?.start ?? 0), true);
}

function misplaced(after: string, old: Outside, now: Outside, names: ScopeNames): ScopeFault | null {
  const places = (holes: readonly Hole[], name: string): Set<string> =>
    new Set(holes.filter((hole) => hole.name === name).map(({ place }) => place));
  for (const name of names.existing) {
    const allowed = places(old.holes, name);
    if (name === importsName) allowed.add(old.importsPlace);
    const moved = now.holes.find((hole) => hole.name === name && !allowed.has(hole.place));
    if (moved !== undefined) return fault('moved', after, moved.start, null, true);
  }
  for (const name of names.added) {
    const [first, ...others] = now.holes.filter((hole) => hole.name === name);
    const second = others.find(({ place }) => place !== first?.place);
    if (second !== undefined) return fault('moved', after, second.start, null, true);
  }
  return null;
}

function fault(reason: ScopeReason, text: string, at: number, expected: string | null, shows: boolean): ScopeFault {
  return { reason, line: lineAt(text, at), found: shows ? lineOf(text, at) : null, expected };
}

/** The line of an offset as it may be shown: without indentation, and bounded. */
export function lineOf(text: string, at: number): string {
  const start = text.lastIndexOf('\n', at - 1) + 1;
  const end = text.indexOf('\n', at);
  const line = text.slice(start, end === -1 ? undefined : end);
  // A long line is shown from the place on.
  const shown = (line.trim().length > shownLength ? line.slice(at - start) : line).trim();
  return shown.length > shownLength ? `${shown.slice(0, shownLength - 1)}…` : shown;
}
