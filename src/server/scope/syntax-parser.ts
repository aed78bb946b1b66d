import { readFile } from 'node:fs/promises';
import path from 'node:path';
import treeSitter from '@vscode/tree-sitter-wasm';
import manifest from '@vscode/tree-sitter-wasm/package.json' with { type: 'json' };
import type { Language, Node } from '@vscode/tree-sitter-wasm';
import type { ScopeGrammar } from '../../protocol/contract.ts';
import { sha256 } from '../../protocol/hash.ts';
import { flatten, type FlatTree } from './flat-tree.ts';
import { grammarFiles } from './grammar-files.ts';
import type { ScopeLanguage } from './port.ts';

/** A tree of the whole text, or the line of the first thing that no grammar rule fits. */
export type Parsed = { readonly ok: true; readonly tree: FlatTree } | { readonly ok: false; readonly line: number };

/** Parses without any bound of time: whoever calls it ends it. Throws when its memory is used up. */
export type SyntaxParser = (language: ScopeLanguage, text: string) => Parsed;

/** Of the web's globals only this is needed, and Node's types do not name it. */
const { WebAssembly: wasm } = globalThis as unknown as {
  readonly WebAssembly: { readonly Memory: new (pages: { initial: number; maximum: number }) => unknown };
};
const pageBytes = 65_536;
/** What the runtime asks for at its start, MiB. */
const initialMiB = 32;

/** A parser for each language, and what each is made of. */
interface LoadedParser {
  readonly parserFor: (language: ScopeLanguage) => Promise<SyntaxParser>;
  readonly grammars: Readonly<Record<ScopeLanguage, ScopeGrammar>>;
}

/**
 * Loads the runtime from a folder; each grammar when it is first asked for, from the bytes that were hashed at the start.
 * `mostMiB`: memory that it may take; the first parser of a thread decides.
 */
export async function loadParser(folder: string, mostMiB: number): Promise<LoadedParser> {
  const read = (name: string): Promise<Uint8Array> => readFile(path.join(folder, name));
  const runtime = await read(grammarFiles.runtime);
  const grammars: Readonly<Record<ScopeLanguage, Uint8Array>> = {
    python: await read(grammarFiles.python),
    javascript: await read(grammarFiles.javascript),
    typescript: await read(grammarFiles.typescript),
    tsx: await read(grammarFiles.tsx),
  };
  const pages = (mib: number): number => (mib * 1_048_576) / pageBytes;
  const module = {
    wasmBinary: runtime,
    // Its own default may grow to 2 GiB.
    wasmMemory: new wasm.Memory({ initial: pages(initialMiB), maximum: pages(mostMiB) }),
    locateFile: (file: string) => path.join(folder, file),
    // Whatever it has to say is in what it throws.
    print: () => undefined,
    printErr: () => undefined,
  };
  await treeSitter.Parser.init(module);
  const parser = new treeSitter.Parser();
  const languages = new Map<ScopeLanguage, Language>();
  const parse: SyntaxParser = (name, text) => {
    parser.setLanguage(languages.get(name) ?? null);
    const tree = parser.parse(text);
    if (tree === null) throw new Error(`no grammar for ${name}`);
    try {
      const { rootNode } = tree;
      return rootNode.hasError
        ? { ok: false, line: firstFault(rootNode).startPosition.row + 1 }
        : { ok: true, tree: flatten(tree, text) };
    } finally {
      tree.delete();
    }
  };
  const identity = { package: manifest.name, version: manifest.version, runtime: sha256(runtime) };
  const grammarOf = (language: ScopeLanguage): ScopeGrammar => ({
    ...identity,
    language,
    grammar: sha256(grammars[language]),
  });
  return {
    grammars: {
      python: grammarOf('python'),
      javascript: grammarOf('javascript'),
      typescript: grammarOf('typescript'),
      tsx: grammarOf('tsx'),
    },
    parserFor: async (name) => {
      if (!languages.has(name)) languages.set(name, await treeSitter.Language.load(grammars[name]));
      return parse;
    },
  };
}

/** The first node, in the order of the text, that is a fault itself. */
function firstFault(root: Node): Node {
  let node = root;
  for (;;) {
    if (node.isError || node.isMissing) return node;
    const next = node.children.find((child) => child !== null && (child.hasError || child.isMissing));
    if (next === undefined || next === null) return node;
    node = next;
  }
}
