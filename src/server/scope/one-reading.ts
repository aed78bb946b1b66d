import { isComment, isToken, textOf, type FlatTree } from './flat-tree.ts';
import type { ScopeLanguage } from './port.ts';

/**
 * Offset of the first place that interpreters and this parser read, or may read, in different ways; null where there is
 * none. These are the few constructs whose reading depends on more than the grammar. Pure.
 */
export function otherReading(tree: FlatTree, language: ScopeLanguage): number | null {
  return language === 'python' ? pythonReading(tree) : scriptReading(tree);
}

function pythonReading(tree: FlatTree): number | null {
  const { text } = tree;
  let last = 0;
  let depth = 0;
  for (let node = 0; node < tree.type.length; node += 1) {
    if (!isToken(tree, node)) continue;
    const start = tree.start[node] ?? 0;
    const gap = text.slice(last, start);
    // What else the grammar takes for white space is none for CPython, and nobody sees it.
    if (!/^[ \t\r\n\f\\]*$/.test(gap)) return last;
    const newLine = last === 0 || gap.includes('\n');
    const joined = gap.indexOf('\\');
    if (joined !== -1) {
      // How a line is indented that begins with a continuation has changed between versions of CPython.
      if (last === 0 || gap.slice(0, joined).includes('\n')) return last + joined;
    } else if (newLine && depth === 0 && !/^\f?\t* *$/.test(gap.slice(gap.lastIndexOf('\n') + 1))) {
      // A tab goes to the next multiple of eight for CPython and counts eight here: the same where tabs come first.
      return start;
    }
    if (!isComment(tree, node)) {
      const token = textOf(tree, node);
      if (token === '(' || token === '[' || token === '{') depth += 1;
      else if (token === ')' || token === ']' || token === '}') depth -= 1;
    }
    last = tree.end[node] ?? last;
  }
  return /^[ \t\r\n\f]*$/.test(text.slice(last)) ? null : last;
}

/** As a field without a value and a semicolon each is read, by some, as a part of the member on the next line. */
const modifiers: ReadonlySet<string> = new Set([
  'abstract',
  'accessor',
  'async',
  'declare',
  'get',
  'override',
  'private',
  'protected',
  'public',
  'readonly',
  'set',
  'static',
]);

function scriptReading(tree: FlatTree): number | null {
  const { text } = tree;
  let last = 0;
  /** The last token that is no comment. */
  let before: number | undefined;
  let newLine = true;
  for (let node = 0; node < tree.type.length; node += 1) {
    if (!isToken(tree, node)) continue;
    const start = tree.start[node] ?? 0;
    const gap = text.slice(last, start);
    // NBSP and its like are white space to V8, but nobody sees them.
    if (!/^[ \t\r\n]*$/.test(gap)) return last;
    newLine ||= gap.includes('\n');
    // A comment for V8 in a script, operators in a module.
    if (text.startsWith('<!--', start) || (newLine && text.startsWith('-->', start))) return start;
    last = tree.end[node] ?? last;
    if (isComment(tree, node)) {
      if (textOf(tree, node).includes('\n')) newLine = true;
      continue;
    }
    if (before !== undefined && isBareModifier(tree, before) && !/^[;}]/.test(text.slice(start, start + 1)))
      return start;
    before = node;
    newLine = false;
  }
  return /^[ \t\r\n]*$/.test(text.slice(last)) ? null : last;
}

function isBareModifier(tree: FlatTree, node: number): boolean {
  const field = tree.parent[node] ?? -1;
  const type = tree.type[field];
  if (type !== 'field_definition' && type !== 'public_field_definition') return false;
  return tree.end[field] === tree.end[node] && modifiers.has(textOf(tree, node));
}
