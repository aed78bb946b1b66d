import { longestName, type Definition, type Definitions } from './definition.ts';
import { childOf, childrenOf, textOf, type FlatTree } from './flat-tree.ts';

/** Statements whose blocks belong to the scope that they stand in: Python knows no scope of a block. */
const clauses: ReadonlySet<string> = new Set([
  'if_statement',
  'elif_clause',
  'else_clause',
  'try_statement',
  'except_clause',
  'except_group_clause',
  'finally_clause',
  'with_statement',
  'for_statement',
  'while_statement',
  'match_statement',
  'case_clause',
]);

interface Place {
  /** A module, a block, or a statement that has blocks. */
  readonly node: number;
  readonly prefix: string;
  readonly of: 'module' | 'class' | 'function';
}

/** Definitions of a Python file: `def`, `class`, `NAME = …`, `type NAME = …`, and those within classes and functions. */
export function pythonDefinitions(tree: FlatTree): Definitions {
  const symbols: Definition[] = [];
  const imports: { from: number; to: number }[] = [];
  const waiting: Place[] = [{ node: 0, prefix: '', of: 'module' }];
  for (let place = waiting.pop(); place !== undefined; place = waiting.pop()) {
    const { prefix, of } = place;
    if (prefix.length > longestName) continue;
    for (const node of childrenOf(tree, place.node)) {
      const to = tree.after[node] ?? 0;
      const add = (name: string, kind: Definition['kind']): void => {
        symbols.push({ name: prefix + name, kind, from: node, to });
      };
      const type = tree.type[node] ?? '';
      if (type === 'block' || clauses.has(type)) waiting.push({ node, prefix, of });
      else if (of === 'module' && (type === 'import_statement' || type === 'import_from_statement'))
        imports.push({ from: node, to });
      else if (type === 'type_alias_statement' && of !== 'function') {
        // The word `type` comes first, and has that type as well.
        const name = nameOf(tree, childrenOf(tree, node)[1]);
        if (name !== undefined) add(name, 'type');
      } else if (type === 'expression_statement' && of !== 'function') {
        const name = assigned(tree, node);
        if (name !== undefined) add(name, of === 'class' ? 'field' : 'variable');
      } else {
        const inner =
          type === 'decorated_definition' ? childOf(tree, node, 'function_definition', 'class_definition') : node;
        const name = nameOf(tree, inner);
        const body = inner === undefined ? undefined : childOf(tree, inner, 'block');
        if (inner === undefined || name === undefined) continue;
        if (tree.type[inner] === 'class_definition') {
          add(name, 'class');
          if (body !== undefined) waiting.push({ node: body, prefix: `${prefix}${name}.`, of: 'class' });
        } else if (tree.type[inner] === 'function_definition') {
          add(name, of === 'class' ? 'method' : 'function');
          if (body !== undefined) waiting.push({ node: body, prefix: `${prefix}${name}.`, of: 'function' });
        }
      }
    }
  }
  const byPlace = (a: { from: number }, b: { from: number }): number => a.from - b.from;
  return { symbols: symbols.toSorted(byPlace), imports: imports.toSorted(byPlace) };
}

function nameOf(tree: FlatTree, node: number | undefined): string | undefined {
  const name = node === undefined ? undefined : childOf(tree, node, 'identifier');
  return name === undefined ? undefined : textOf(tree, name);
}

/** The one name that a statement assigns to; undefined for `a = b = c`, `a, b = c` and `a += b`. */
function assigned(tree: FlatTree, statement: number): string | undefined {
  const [assignment, ...others] = childrenOf(tree, statement);
  if (assignment === undefined || others.length > 0 || tree.type[assignment] !== 'assignment') return undefined;
  const [left, ...rest] = childrenOf(tree, assignment);
  if (left === undefined || tree.type[left] !== 'identifier') return undefined;
  return rest.some((node) => tree.type[node] === 'assignment') ? undefined : textOf(tree, left);
}
