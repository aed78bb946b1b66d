import type { FrozenContract } from '../../protocol/contract.ts';
import { insidePaths } from '../../protocol/executor.ts';
import type { FileEntry, RelPath } from '../../protocol/primitives.ts';
import type { Language } from '../sandbox/port.ts';

const programs: Readonly<Record<Language, RegExp>> = {
  node: /^(?:node|npm|npx|vitest|jest|tsc|eslint)$/,
  python: /^(?:python3?(?:\.\d+)?|pytest|py\.test)$/,
  go: /^go$/,
  rust: /^cargo$/,
};

/** The language that the checks are written in, as far as their programs tell; null: not one of those that are known. */
export function languageOf(contract: FrozenContract): Language | null {
  for (const { argv } of contract.checks) {
    const program = argv[0]?.split('/').at(-1) ?? '';
    for (const language of ['node', 'python', 'go', 'rust'] as const)
      if (programs[language].test(program)) return language;
  }
  return null;
}

/** All files of the repository that image preparation may see. */
export function dependencyEntries(contract: FrozenContract): readonly FileEntry[] {
  const { npm, python } = contract.imageDependencies ?? {};
  return [...(npm === undefined ? [] : [npm.lock, ...npm.manifests]), ...(python === undefined ? [] : [python.lock])];
}

/** Folders of the workspace that get links to the image's packages. */
export function moduleFolders(contract: FrozenContract): readonly RelPath[] {
  const npm = contract.imageDependencies?.npm;
  if (npm === undefined) return [];
  return npm.manifests.map(({ path }) => path.replace(/package\.json$/, 'node_modules') as RelPath);
}

/** Variables that commands get because of the contract's packages; a check's own come after them. */
export function dependencyEnvironment(contract: FrozenContract): Readonly<Record<string, string>> {
  const python = contract.imageDependencies?.python;
  if (python === undefined) return {};
  const folders = python.sources.map((source) =>
    source === '.' ? insidePaths.workspace : `${insidePaths.workspace}/${source}`,
  );
  return { PYTHONPATH: folders.join(':') };
}
