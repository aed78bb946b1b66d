import type { ScopeLanguage } from './port.ts';

const byEnding: Readonly<Record<string, ScopeLanguage>> = {
  py: 'python',
  pyi: 'python',
  js: 'javascript',
  mjs: 'javascript',
  cjs: 'javascript',
  jsx: 'javascript',
  ts: 'typescript',
  mts: 'typescript',
  cts: 'typescript',
  tsx: 'tsx',
};

/** Endings of the files in which symbols can be named, for people. */
export const scopeEndings: readonly string[] = Object.keys(byEnding).map((ending) => `.${ending}`);

/** The language of a file by its name; null where symbols can't be named in it. */
export function scopeLanguageOf(path: string): ScopeLanguage | null {
  const ending = /\.([a-z]+)$/i.exec(path)?.[1]?.toLowerCase() ?? '';
  return Object.hasOwn(byEnding, ending) ? (byEnding[ending] ?? null) : null;
}
