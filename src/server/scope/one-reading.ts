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

/**
 * Words that are a part of what follows, or a name, or a statement of their own, by whether a line break follows: not every
 * reader looks for it. A field of that name without value and semicolon is read as a part of the next member, or is not.
 */
const modifiers: ReadonlySet<string> = new Set([
  'abstract',
  'accessor',
  'async',
  'declare',
  'get',
  'interface',
  'module',
  'namespace',
  'override',
  'private',
  'protected',
  'public',
  'readonly',
  'set',
  'static',
  'type',
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
    if (before !== undefined && modifiers.has(textOf(tree, before))) {
      if (newLine && tree.type[before] === textOf(tree, before)) return start;
      if (isBareField(tree, before) && text[start] !== ';' && text[start] !== '}') return start;
    }
    before = node;
    newLine = false;
  }
  return /^[ \t\r\n]*$/.test(text.slice(last)) ? null : last;
}

/** True for the name of a field that has no value. */
function isBareField(tree: FlatTree, node: number): boolean {
  const field = tree.parent[node] ?? -1;
  const type = tree.type[field];
  return (type === 'field_definition' || type === 'public_field_definition') && tree.end[field] === tree.end[node];
}
