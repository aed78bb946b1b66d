/** What a repository's own files say about how its checks are run. Proposals: a person reads them in the new contract. */
export interface ProjectHints {
  /** The usual way to run all tests; empty where none is recognised. */
  readonly check: readonly string[];
  /** Folders that this runner writes to. */
  readonly scratch: readonly string[];
  /** A lock file of npm that brings the packages. */
  readonly npm: string | null;
  /** A requirements file with versions and hashes. */
  readonly python: string | null;
}

/** Files that hints are taken from, all in the repository's root. */
export const hintFiles = [
  'package.json',
  'package-lock.json',
  'pyproject.toml',
  'pytest.ini',
  'requirements.lock',
  'requirements.txt',
  'requirements-dev.txt',
  'go.mod',
  'Cargo.toml',
] as const;

type Read = (file: (typeof hintFiles)[number]) => string | undefined;

/**
 * Looks at `hintFiles` (undefined: not there) and at the names of the files that git tracks. Pure; text that can't be read
 * as what it should be says nothing.
 */
export function projectHints(read: Read, tracked: readonly string[]): ProjectHints {
  const none: ProjectHints = { check: [], scratch: [], npm: null, python: null };
  const manifest = packageManifest(read('package.json'));
  const named = (name: string): boolean => manifest?.packages.has(name) === true;
  if (manifest !== null) {
    const lock = manifest.packages.size > 0 && read('package-lock.json') !== undefined ? 'package-lock.json' : null;
    const npm = { ...none, npm: lock };
    if (named('vitest'))
      return {
        ...npm,
        check: ['vitest', 'run', '--reporter=verbose'],
        scratch: ['node_modules/.vite', 'node_modules/.vite-temp'],
      };
    if (named('jest')) return { ...npm, check: ['jest', '--verbose', '--ci'] };
    const nodeTests = tracked.some((path) => /\.test\.[cm]?js$/.test(path));
    if (nodeTests || /\bnode\b.*--test\b/.test(manifest.test)) return { ...npm, check: ['node', '--test'] };
  }
  const requirements = ['requirements.lock', 'requirements-dev.txt', 'requirements.txt'] as const;
  const locked = requirements.find((file) => /--hash=sha256:/.test(read(file) ?? '')) ?? null;
  const pyproject = read('pyproject.toml');
  const pytest = [pyproject, read('pytest.ini'), ...requirements.map(read)].some((text) =>
    /\bpytest\b/.test(text ?? ''),
  );
  if (pytest) return { ...none, check: ['python3', '-m', 'pytest', '-v'], scratch: ['.pytest_cache'], python: locked };
  if (tracked.some((path) => /(?:^|\/)(?:test_[^/]+|[^/]+_test)\.py$/.test(path)))
    return { ...none, check: ['python3', '-m', 'unittest', '-v'], python: locked };
  if (read('go.mod') !== undefined) return { ...none, check: ['go', 'test', '-v', './...'] };
  if (read('Cargo.toml') !== undefined) return { ...none, check: ['cargo', 'test'], scratch: ['target'] };
  return none;
}

function packageManifest(text: string | undefined): { packages: ReadonlySet<string>; test: string } | null {
  if (text === undefined) return null;
  try {
    const value = record(JSON.parse(text));
    const packages = ['dependencies', 'devDependencies'].flatMap((member) => Object.keys(record(value[member])));
    const { test } = record(value['scripts']);
    return { packages: new Set(packages), test: typeof test === 'string' ? test : '' };
  } catch {
    return null;
  }
}

function record(value: unknown): Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null ? { ...value } : {};
}
