import type { Tree, TreeCursor } from '@vscode/tree-sitter-wasm';

/**
 * A syntax tree in preorder, as parallel lists: no recursion over it can overflow, whatever the depth, and it outlives
 * the parser's memory. Node `i` has its children from `i + 1` up to (not including) `after[i]`.
 */
export interface FlatTree {
  readonly text: string;
  readonly type: readonly string[];
  /** Offsets in UTF-16 code units. */
  readonly start: readonly number[];
  readonly end: readonly number[];
  readonly after: readonly number[];
  /** −1 for the root. */
  readonly parent: readonly number[];
}

/**
 * Nodes whose text is one token: white space within them is content. Parts of them are not looked at, and no symbol is
 * defined within them.
 */
const whole: ReadonlySet<string> = new Set([
  'comment',
  'html_comment',
  'hash_bang_line',
  'string',
  'template_string',
  'template_literal_type',
  'regex',
  'jsx_element',
  'jsx_self_closing_element',
  'jsx_fragment',
]);

/** White space that the grammar of Python shows as a node. */
const spaces: ReadonlySet<string> = new Set(['line_continuation']);

const comments: ReadonlySet<string> = new Set(['comment', 'html_comment']);

/** Copies a tree out of the parser's memory. */
export function flatten(tree: Tree, text: string): FlatTree {
  const type: string[] = [];
  const start: number[] = [];
  const end: number[] = [];
  const after: number[] = [];
  const parent: number[] = [];
  const open: number[] = [];
  const cursor: TreeCursor = tree.walk();
  try {
    for (;;) {
      const kind = cursor.nodeType;
      if (!spaces.has(kind)) {
        const node = type.length;
        type.push(kind);
        start.push(cursor.startIndex);
        // To the grammar of Python the first half of a line end is the end of a comment.
        end.push(cursor.endIndex - (kind === 'comment' && text[cursor.endIndex - 1] === '\r' ? 1 : 0));
        after.push(node + 1);
        parent.push(open.at(-1) ?? -1);
        if (!whole.has(kind) && cursor.gotoFirstChild()) {
          open.push(node);
          continue;
        }
      }
      while (!cursor.gotoNextSibling()) {
        const done = open.pop();
        if (done === undefined || !cursor.gotoParent()) return { text, type, start, end, after, parent };
        after[done] = type.length;
      }
    }
  } finally {
    cursor.delete();
  }
}

/** True for what draws a token of the text: no node below it, and not empty. */
export function isToken(tree: FlatTree, node: number): boolean {
  return tree.after[node] === node + 1 && (tree.end[node] ?? 0) > (tree.start[node] ?? 0);
}

export function isComment(tree: FlatTree, node: number): boolean {
  return comments.has(tree.type[node] ?? '');
}

export function textOf(tree: FlatTree, node: number): string {
  return tree.text.slice(tree.start[node], tree.end[node]);
}

/** The children of a node, comments left out. */
export function childrenOf(tree: FlatTree, node: number): readonly number[] {
  const found: number[] = [];
  const end = tree.after[node] ?? 0;
  for (let child = node + 1; child < end; child = tree.after[child] ?? end)
    if (!isComment(tree, child)) found.push(child);
  return found;
}

/** The first child of one of these types. */
export function childOf(tree: FlatTree, node: number, ...types: readonly string[]): number | undefined {
  const end = tree.after[node] ?? 0;
  for (let child = node + 1; child < end; child = tree.after[child] ?? end)
    if (types.includes(tree.type[child] ?? '')) return child;
  return undefined;
}

/** Line of an offset, from 1. */
export function lineAt(text: string, offset: number): number {
  let line = 1;
  for (let at = text.indexOf('\n'); at !== -1 && at < offset; at = text.indexOf('\n', at + 1)) line += 1;
  return line;
}
