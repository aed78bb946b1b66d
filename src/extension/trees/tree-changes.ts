import type { TreeNode } from './tree-node.ts';

/** What a view has to draw anew: everything, or these rows with what is below them. */
export type TreeChanges = { readonly kind: 'all' } | { readonly kind: 'rows'; readonly ids: readonly string[] };

/** A row without its children, as text that two equal rows share. */
function face(row: TreeNode): string {
  return JSON.stringify({ ...row, children: row.children === 'load' ? 'load' : null });
}

/** Whether VS Code draws these rows without room for a twistie: it does so where none of them has one. */
function withoutTwisties(rows: readonly TreeNode[]): boolean {
  return rows.every(({ collapsible }) => collapsible === 'no');
}

function sameIds(before: readonly TreeNode[], after: readonly TreeNode[]): boolean {
  return before.length === after.length && before.every((row, index) => row.id === after[index]?.id);
}

function compare(before: readonly TreeNode[], after: readonly TreeNode[], changed: string[]): void {
  for (const [index, row] of after.entries()) {
    const old = before[index];
    if (old === undefined) continue;
    const oldChildren = old.children === 'load' ? [] : old.children;
    const children = row.children === 'load' ? [] : row.children;
    // Drawing a row anew draws what is below it too: no need to look further down.
    const moved = withoutTwisties(oldChildren) !== withoutTwisties(children);
    if (face(old) !== face(row) || !sameIds(oldChildren, children) || moved) changed.push(row.id);
    else compare(oldChildren, children, changed);
  }
}

/**
 * The smallest set of rows to draw anew. A whole redraw for each streamed word would move hovers and cost time; a row
 * that is not named here keeps its place, its focus and its hover.
 */
export function treeChanges(before: readonly TreeNode[], after: readonly TreeNode[]): TreeChanges {
  if (!sameIds(before, after)) return { kind: 'all' };
  // What is shown turns from present into past or back: every row changes its face.
  if (before[0]?.current !== after[0]?.current) return { kind: 'all' };
  // Where the first one gets a twistie or the last one loses it, all of them move.
  if (withoutTwisties(before) !== withoutTwisties(after)) return { kind: 'all' };
  const ids: string[] = [];
  compare(before, after, ids);
  return { kind: 'rows', ids };
}
