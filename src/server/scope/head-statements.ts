import { childrenOf, type FlatTree } from './flat-tree.ts';

/** What has statements, of which the first ones may be special. */
const bodies: ReadonlySet<string> = new Set(['module', 'block', 'program', 'statement_block']);
/** What comes before them and is none. */
const before: ReadonlySet<string> = new Set(['{', 'hash_bang_line']);
const texts: ReadonlySet<string> = new Set(['string', 'concatenated_string']);

/**
 * Statements that have a meaning by standing first in their body: docstrings, directives (`'use strict'`), imports of the
 * future. What comes before one takes its meaning away; what goes from before a text may give it one. Pure.
 */
export function headStatements(tree: FlatTree): ReadonlySet<number> {
  const found = new Set<number>();
  for (let node = 0; node < tree.type.length; node += 1) {
    if (!bodies.has(tree.type[node] ?? '')) continue;
    const end = tree.after[node] ?? 0;
    for (let child = node + 1; child < end; child = tree.after[child] ?? end) {
      const type = tree.type[child] ?? '';
      if (before.has(type) || type === 'comment') continue;
      const parts = type === 'expression_statement' ? childrenOf(tree, child).filter((p) => tree.type[p] !== ';') : [];
      const isText = parts.length === 1 && parts.every((part) => texts.has(tree.type[part] ?? ''));
      if (!isText && type !== 'future_import_statement') break;
      found.add(child);
    }
  }
  return found;
}
