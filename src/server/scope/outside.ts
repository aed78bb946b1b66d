import { importsName, type Definitions } from './definition.ts';
import { childrenOf, isComment, isToken, textOf, type FlatTree } from './flat-tree.ts';
import { headStatements } from './head-statements.ts';
import type { ScopeLanguage } from './port.ts';

/** One token outside the named symbols, with everything before it that can change what the program is. */
export interface OutsideToken {
  readonly text: string;
  readonly start: number;
  readonly comment: boolean;
  /** What the tree ends and begins between the token before and this one; empty for comments, which are no part of it. */
  readonly structure: string;
  /** What of the white space before it counts. */
  readonly gap: string;
}

/** A named symbol, or an import, that was left out. */
export interface Hole {
  readonly name: string;
  /** Where it stands among what is outside: the same text at two versions' places means the same place. */
  readonly place: string;
  readonly start: number;
  /** Nodes of the tree: the tokens in it. */
  readonly from: number;
  readonly to: number;
}

export interface Outside {
  readonly tokens: readonly OutsideToken[];
  readonly holes: readonly Hole[];
  /** Where a first import may stand. */
  readonly importsPlace: string;
}

interface Cut {
  readonly name: string;
  readonly from: number;
  readonly to: number;
}

/** Everything of a file but what these names stand for. Pure. */
export function outsideOf(
  tree: FlatTree,
  language: ScopeLanguage,
  definitions: Definitions,
  names: ReadonlySet<string>,
): Outside {
  const cuts = cutsOf(definitions, names);
  const tokens: OutsideToken[] = [];
  const holes: Hole[] = [];
  const open: number[] = [];
  const size = tree.type.length;
  let structure = '';
  /** End of the last token, in or out of a hole. */
  let last = 0;
  let importsPlace: string | undefined;
  const heads = headStatements(tree);
  const importsBefore = childrenOf(tree, 0).find((node) => !heads.has(node) && tree.type[node] !== 'hash_bang_line');
  /** The hole that was left last, while only comments came since. */
  let left: { readonly start: number; readonly end: number } | undefined;
  let nextCut = 0;

  const close = (node: number): void => {
    for (let top = open.at(-1); top !== undefined && (tree.after[top] ?? size) <= node; top = open.at(-1)) {
      open.pop();
      structure += ')';
    }
  };
  /** `alone`: at the start of a line, which is where a statement of Python is no part of another. */
  const place = (alone: boolean): string => `${tokens.length}${structure}${alone ? '' : ' '}`;
  const isAlone = (node: number): boolean => {
    const gap = tree.text.slice(last, tree.start[node]);
    return language !== 'python' || last === 0 || (gap.includes('\n') && !gap.includes('\\'));
  };
  const token = (node: number): void => {
    const start = tree.start[node] ?? 0;
    const comment = isComment(tree, node);
    if (comment && left !== undefined && belongs(tree.text, language, left, start)) {
      last = tree.end[node] ?? last;
      left = { start: left.start, end: last };
      return;
    }
    left = undefined;
    // A file begins with a line: blank ones before it are no more than others.
    const gap =
      last === 0 ? gapOf(tree.text.slice(0, start), language, '\n') : gapOf(tree.text.slice(last, start), language);
    const kind = tree.type[node] ?? '';
    tokens.push({
      text: textOf(tree, node),
      start,
      comment,
      structure: comment ? '' : `${structure}${kind}`,
      gap,
    });
    if (!comment) structure = '';
    last = tree.end[node] ?? last;
  };

  for (let node = 0; node < size; node += 1) {
    close(node);
    const cut = cuts[nextCut];
    if (node === importsBefore) importsPlace = place(true);
    if (cut !== undefined && cut.from === node) {
      nextCut += 1;
      const end = lastToken(tree, cut);
      holes.push({
        name: cut.name,
        place: place(isAlone(node)),
        start: tree.start[node] ?? 0,
        from: cut.from,
        to: cut.to,
      });
      last = tree.end[end] ?? last;
      left = { start: tree.start[node] ?? 0, end: last };
      // Comments at its end are looked at one by one: whether they belong to it is not for the parser to say.
      for (let rest = end + 1; rest < cut.to; rest += 1) if (isComment(tree, rest)) token(rest);
      node = cut.to - 1;
    } else if (isToken(tree, node)) token(node);
    else if (tree.after[node] === node + 1) structure += `(${tree.type[node] ?? ''})`;
    else {
      // That it stands first is a part of what it is.
      structure += `(${heads.has(node) ? '!' : ''}${tree.type[node] ?? ''}`;
      open.push(node);
    }
  }
  close(size);
  importsPlace ??= place(true);
  tokens.push({ text: '', start: tree.text.length, comment: false, structure, gap: '' });
  return { tokens, holes, importsPlace };
}

/** The ranges to leave out, in order; what lies within another is a part of it. */
function cutsOf(definitions: Definitions, names: ReadonlySet<string>): readonly Cut[] {
  const wanted: Cut[] = definitions.symbols.filter(({ name }) => names.has(name));
  if (names.has(importsName)) wanted.push(...definitions.imports.map((range) => ({ name: importsName, ...range })));
  const cuts: Cut[] = [];
  for (const cut of wanted.toSorted((a, b) => a.from - b.from || b.to - a.to))
    if (cut.from >= (cuts.at(-1)?.to ?? 0)) cuts.push(cut);
  return cuts;
}

/** The last token of a range that is no comment. */
function lastToken(tree: FlatTree, { from, to }: Cut): number {
  for (let node = to - 1; node > from; node -= 1) if (isToken(tree, node) && !isComment(tree, node)) return node;
  return from;
}

/**
 * Whether a comment behind a symbol is part of it: what stands on its last line is, and, where indentation says what
 * belongs to what, what is indented further than the symbol begins.
 */
function belongs(
  text: string,
  language: ScopeLanguage,
  hole: { readonly start: number; readonly end: number },
  comment: number,
): boolean {
  if (!text.slice(hole.end, comment).includes('\n')) return true;
  const column = (offset: number): number => offset - (text.lastIndexOf('\n', offset - 1) + 1);
  return language === 'python' && column(comment) > column(hole.start);
}

/**
 * What of the white space between two tokens counts: that there is a line break, and of which kind; in Python the
 * indentation behind it. Anything that is no plain white space counts as it is.
 */
function gapOf(gap: string, language: ScopeLanguage, start = ''): string {
  // How much space stands before a continuation is no more than other space.
  if (!/^[ \t\r\n]*$/.test(gap)) return gap.replaceAll(/[ \t]+(?=\\)/g, '');
  const at = gap.lastIndexOf('\n');
  if (at === -1 && start === '') return '';
  const kind = start === '' && gap.includes('\r\n') ? '\r\n' : '\n';
  return language === 'python' ? kind + gap.slice(at + 1) : kind;
}
