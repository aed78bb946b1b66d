import { expect, test } from 'vitest';
import { projectHints } from '../../../src/client/project-hints.ts';

const nothing = { check: [], scratch: [], npm: null, python: null };

test.each<[string, Record<string, string>, readonly string[], Partial<ReturnType<typeof projectHints>>]>([
  ['nothing that is known', { 'package.json': '{ "scripts": { "test": "make" } }' }, [], {}],
  ['text that is no package.json', { 'package.json': '{ "devDependencies": 7, ' }, [], {}],
  [
    'vitest, with its lock file',
    { 'package.json': '{ "devDependencies": { "vitest": "1" } }', 'package-lock.json': '{}' },
    [],
    {
      check: ['vitest', 'run', '--reporter=verbose'],
      scratch: ['node_modules/.vite', 'node_modules/.vite-temp'],
      npm: 'package-lock.json',
    },
  ],
  [
    'jest without a lock file',
    { 'package.json': '{ "dependencies": { "jest": "1" } }' },
    [],
    { check: ['jest', '--verbose', '--ci'] },
  ],
  [
    "Node's own runner by its script, and no lock where there is no package",
    { 'package.json': '{ "scripts": { "test": "node --test test/" } }', 'package-lock.json': '{}' },
    [],
    { check: ['node', '--test'] },
  ],
  [
    "Node's own runner by the names of files",
    { 'package.json': '{}' },
    ['test/a.test.mjs'],
    { check: ['node', '--test'] },
  ],
  [
    'pytest with locked wheels',
    { 'pyproject.toml': '[tool.pytest.ini_options]', 'requirements.lock': 'x==1 --hash=sha256:00' },
    ['tests/test_a.py'],
    { check: ['python3', '-m', 'pytest', '-v'], scratch: ['.pytest_cache'], python: 'requirements.lock' },
  ],
  [
    'pytest without hashes: no lock',
    { 'requirements.txt': 'pytest' },
    [],
    { check: ['python3', '-m', 'pytest', '-v'], scratch: ['.pytest_cache'] },
  ],
  ['unittest by the names of files', {}, ['tests/test_price.py'], { check: ['python3', '-m', 'unittest', '-v'] }],
  ['go', { 'go.mod': 'module x' }, [], { check: ['go', 'test', '-v', './...'] }],
  ['cargo', { 'Cargo.toml': '[package]' }, [], { check: ['cargo', 'test'], scratch: ['target'] }],
])('%s', (_, files, tracked, found) => {
  expect(projectHints((file) => files[file], tracked)).toEqual({ ...nothing, ...found });
});
