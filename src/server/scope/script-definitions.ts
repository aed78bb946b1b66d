import { longestName, type Definition, type Definitions } from './definition.ts';
import { childOf, childrenOf, isComment, textOf, type FlatTree } from './flat-tree.ts';
import type { SymbolKind } from './port.ts';

/** What declares a name by its first name node. */
const declarations: Readonly<Record<string, SymbolKind>> = {
  function_declaration: 'function',
  generator_function_declaration: 'function',
  function_signature: 'function',
  class_declaration: 'class',
  abstract_class_declaration: 'class',
  interface_declaration: 'interface',
  type_alias_declaration: 'type',
  enum_declaration: 'enum',
  internal_module: 'namespace',
  module: 'namespace',
};

const members: Readonly<Record<string, SymbolKind>> = {
  method_definition: 'method',
  method_signature: 'method',
  abstract_method_signature: 'method',
  public_field_definition: 'field',
  field_definition: 'field',
  property_signature: 'member',
  pair: 'member',
  enum_assignment: 'member',
  property_identifier: 'member',
};

/** A list of statements, or of members. `nested`: within a function, whose variables can't be named. */
interface Place {
  readonly node: number;
  readonly prefix: string;
  readonly of: 'statements' | 'members';
  readonly nested: boolean;
}

/** Definitions of a file in JavaScript or TypeScript, and those within classes, objects, namespaces and functions. */
export function scriptDefinitions(tree: FlatTree): Definitions {
  const symbols: Definition[] = [];
  const imports: { from: number; to: number }[] = [];
  const waiting: Place[] = [{ node: 0, prefix: '', of: 'statements', nested: false }];

  /** What a name stands for: its parts can be named, too. */
  const within = (value: number | undefined, prefix: string): void => {
    if (value === undefined || prefix.length > longestName) return;
    const push = (node: number | undefined, of: Place['of'], nested: boolean): void => {
      if (node !== undefined) waiting.push({ node, prefix: `${prefix}.`, of, nested });
    };
    switch (tree.type[value]) {
      case 'object':
        push(value, 'members', false);
        return;
      case 'class':
      case 'class_declaration':
      case 'abstract_class_declaration':
        push(childOf(tree, value, 'class_body'), 'members', false);
        return;
      case 'interface_declaration':
        push(childOf(tree, value, 'interface_body', 'object_type'), 'members', false);
        return;
      case 'enum_declaration':
        push(childOf(tree, value, 'enum_body'), 'members', false);
        return;
      case 'internal_module':
      case 'module':
        push(childOf(tree, value, 'statement_block'), 'statements', false);
        return;
      case 'function_declaration':
      case 'generator_function_declaration':
      case 'function_expression':
      case 'generator_function':
      case 'arrow_function':
      case 'method_definition':
        push(childOf(tree, value, 'statement_block'), 'statements', true);
        return;
      default:
    }
  };

  const statement = (node: number, { prefix, nested }: Place): void => {
    const to = tree.after[node] ?? 0;
    const add = (name: string, kind: SymbolKind, value: number | undefined, from = node, end = to): void => {
      symbols.push({ name: prefix + name, kind, from, to: end });
      within(value, prefix + name);
    };
    if (tree.type[node] === 'import_statement') {
      if (prefix === '') imports.push({ from: node, to });
      return;
    }
    const inner = declared(tree, node);
    if (tree.type[node] === 'export_statement' && childOf(tree, node, 'default') !== undefined) {
      const value = inner ?? valueAfter(tree, node, 'default');
      add('default', kindOf(tree, value), value);
    }
    if (inner === undefined) return;
    const type = tree.type[inner] ?? '';
    const kind = Object.hasOwn(declarations, type) ? declarations[type] : undefined;
    if (kind !== undefined) {
      const name = childOf(tree, inner, 'identifier', 'type_identifier', 'nested_identifier', 'string');
      if (name !== undefined && (!nested || kind === 'function' || kind === 'class'))
        add(plain(textOf(tree, name)), kind, inner);
    } else if (type === 'lexical_declaration' || type === 'variable_declaration') {
      if (nested) return;
      const declarators = childrenOf(tree, inner).filter((child) => tree.type[child] === 'variable_declarator');
      if (prefix === '' && inner === node && declarators.length > 0 && declarators.every((d) => isRequire(tree, d))) {
        imports.push({ from: node, to });
        return;
      }
      for (const declarator of declarators) {
        const [name] = childrenOf(tree, declarator);
        if (name === undefined || tree.type[name] !== 'identifier') continue;
        const value = valueAfter(tree, declarator, '=');
        // Of several in one statement each is its own part; the only one is the whole statement.
        if (declarators.length === 1) add(textOf(tree, name), kindOf(tree, value), value);
        else add(textOf(tree, name), kindOf(tree, value), value, declarator, tree.after[declarator]);
      }
    } else if (type === 'assignment_expression' && !nested) {
      const [left] = childrenOf(tree, inner);
      const name = left === undefined ? undefined : dotted(tree, left);
      const value = valueAfter(tree, inner, '=');
      if (name !== undefined) add(name, kindOf(tree, value), value);
    }
  };

  const member = (node: number, siblings: readonly number[], at: number, { prefix }: Place): void => {
    const type = tree.type[node] ?? '';
    if (!Object.hasOwn(members, type)) return;
    const named = ['property_identifier', 'private_property_identifier', 'number', 'string'];
    const key = type === 'property_identifier' ? node : childOf(tree, node, ...named);
    if (key === undefined) return;
    let first = at;
    while (first > 0 && tree.type[siblings[first - 1] ?? 0] === 'decorator') first -= 1;
    const next = siblings[at + 1];
    const closes = next !== undefined && [';', ','].includes(textOf(tree, next)) ? next : node;
    const name = prefix + plain(textOf(tree, key));
    const value = type === 'pair' ? valueAfter(tree, node, ':') : type === 'method_definition' ? node : undefined;
    const kind = members[type] ?? 'member';
    symbols.push({ name, kind, from: siblings[first] ?? node, to: tree.after[closes] ?? 0 });
    within(value ?? valueAfter(tree, node, '='), name);
  };

  for (let place = waiting.pop(); place !== undefined; place = waiting.pop()) {
    const children = childrenOf(tree, place.node);
    for (const [at, node] of children.entries()) {
      if (place.of === 'statements') statement(node, place);
      else member(node, children, at, place);
    }
  }
  const byPlace = (a: { from: number }, b: { from: number }): number => a.from - b.from;
  return { symbols: symbols.toSorted(byPlace), imports: imports.toSorted(byPlace) };
}

/** What a statement declares, without `export` and `declare` around it. */
function declared(tree: FlatTree, statement: number): number | undefined {
  let node: number | undefined = statement;
  while (node !== undefined) {
    const type: string = tree.type[node] ?? '';
    if (type === 'expression_statement') {
      node = childOf(tree, node, 'internal_module', 'assignment_expression');
    } else if (type === 'export_statement' || type === 'ambient_declaration') {
      node = childOf(
        tree,
        node,
        ...Object.keys(declarations),
        'ambient_declaration',
        'lexical_declaration',
        'variable_declaration',
      );
    } else return node;
  }
  return undefined;
}

/** The node after a sign that stands between the children of a node. */
function valueAfter(tree: FlatTree, node: number, sign: string): number | undefined {
  const children = childrenOf(tree, node);
  const at = children.findIndex((child) => tree.type[child] === sign);
  return at === -1 ? undefined : children[at + 1];
}

function kindOf(tree: FlatTree, value: number | undefined): SymbolKind {
  const type = value === undefined ? '' : (tree.type[value] ?? '');
  if (Object.hasOwn(declarations, type)) return declarations[type] ?? 'variable';
  if (type === 'class') return 'class';
  return /function/.test(type) ? 'function' : 'variable';
}

/** A key as it is named: quotes around a plain word left out. */
function plain(text: string): string {
  return /^(['"])[\w$-]+\1$/.test(text) ? text.slice(1, -1) : text;
}

/** `module.exports`, `Foo.prototype.bar`: names joined by dots, and nothing else; a bare name is no definition. */
function dotted(tree: FlatTree, left: number): string | undefined {
  if (tree.type[left] !== 'member_expression') return undefined;
  const end = tree.after[left] ?? 0;
  for (let node = left; node < end; node += 1) {
    const type = tree.type[node] ?? '';
    if (
      isComment(tree, node) ||
      !['member_expression', 'identifier', 'this', '.', 'property_identifier'].includes(type)
    )
      return undefined;
  }
  return textOf(tree, left).replaceAll(/\s+/g, '');
}

/** `const a = require('x')`, `const { a, b: c } = require('x').d`: nothing in it that could run anything else. */
function isRequire(tree: FlatTree, declarator: number): boolean {
  const [name] = childrenOf(tree, declarator);
  let value = valueAfter(tree, declarator, '=');
  if (name === undefined || value === undefined) return false;
  const patterns = ['object_pattern', 'pair_pattern', 'shorthand_property_identifier_pattern', 'property_identifier'];
  for (let node = name; node < (tree.after[name] ?? 0); node += 1)
    if (![...patterns, 'identifier', '{', '}', ',', ':', 'comment'].includes(tree.type[node] ?? '')) return false;
  while (tree.type[value] === 'member_expression') {
    const [object, dot]: readonly (number | undefined)[] = childrenOf(tree, value);
    if (object === undefined || dot === undefined || tree.type[dot] !== '.') return false;
    value = object;
  }
  if (tree.type[value] !== 'call_expression') return false;
  const [callee, list] = childrenOf(tree, value);
  if (callee === undefined || list === undefined || textOf(tree, callee) !== 'require') return false;
  const [open, argument, close] = childrenOf(tree, list);
  return (
    open !== undefined &&
    argument !== undefined &&
    close !== undefined &&
    tree.type[argument] === 'string' &&
    tree.type[close] === ')'
  );
}
