/** The files of the runtime and the grammars, as they lie in one folder. */
export const grammarFiles = {
  runtime: 'tree-sitter.wasm',
  python: 'tree-sitter-python.wasm',
  javascript: 'tree-sitter-javascript.wasm',
  typescript: 'tree-sitter-typescript.wasm',
  tsx: 'tree-sitter-tsx.wasm',
} as const;
