const testFolder = /^(?:tests?|__tests__|specs?|testing|testdata|__snapshots__)$/i;
const testFile =
  /(?:^|\/)(?:test_[^/]+\.py|[^/]+_test\.(?:py|go|rs)|conftest\.py|[^/]+\.(?:test|spec)\.[cm]?[jt]sx?)$/i;

/** Whether a path is in a test folder or named like a test: protected unless the contract says otherwise. */
export function isTestFile(path: string): boolean {
  const folders = path.split('/').slice(0, -1);
  return folders.some((folder) => testFolder.test(folder)) || testFile.test(path);
}

/**
 * Files of the snapshot that a command names: as a path (`tests/a.py`, `./tests/a.py`, `tests/a.py::T::t`), as a folder,
 * or as a Python module after `-m unittest` (`tests.test_usage`, `tests.test_usage.Case.test_one`).
 */
export function filesNamedBy(argv: readonly string[], paths: readonly string[]): readonly string[] {
  const known = new Set(paths);
  const found = new Set<string>();
  for (const argument of argv.slice(1)) {
    const name = (argument.split('::')[0] ?? '').replace(/^(?:\.\/)+/, '').replace(/\/+$/, '');
    if (name === '') continue;
    if (known.has(name)) found.add(name);
    for (const path of paths) if (path.startsWith(`${name}/`)) found.add(path);
    if (/^[\w.]+$/.test(name) && name.includes('.')) {
      const parts = name.split('.');
      for (let n = parts.length; n > 0; n -= 1) {
        const file = `${parts.slice(0, n).join('/')}.py`;
        if (known.has(file)) {
          found.add(file);
          break;
        }
      }
    }
  }
  return [...found];
}
