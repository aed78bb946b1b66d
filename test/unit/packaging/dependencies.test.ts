import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { expect, it } from 'vitest';
import { root } from '../../../scripts/lib/root.ts';

interface Manifest {
  readonly dependencies?: Readonly<Record<string, string>>;
  readonly devDependencies?: Readonly<Record<string, string>>;
  readonly optionalDependencies?: Readonly<Record<string, string>>;
}

const text = (file: string): Promise<string> => readFile(path.join(root, file), 'utf8');
const manifest = async (file: string): Promise<Manifest> => JSON.parse(await text(file)) as Manifest;

/** The packages that the first column of a section's table names. */
function named(document: string, heading: string): string[] {
  const section = document.split(/^## /m).find((part) => part.startsWith(heading)) ?? '';
  const cells = section.split('\n').flatMap((line) => (line.startsWith('| `') ? [line.split('|')[1] ?? ''] : []));
  return cells.flatMap((cell) => [...cell.replace(/\(.*\)/, '').matchAll(/`([^`]+)`/g)].map((match) => match[1] ?? ''));
}

it('docs/dependencies.md names every package, and none that is not there', async () => {
  const document = await text('docs/dependencies.md');
  const { dependencies = {}, devDependencies = {}, optionalDependencies = {} } = await manifest('package.json');
  const workbench = (await manifest('test/e2e/workbench/package.json')).dependencies ?? {};
  expect(named(document, 'In the product').toSorted()).toEqual(Object.keys(dependencies).toSorted());
  const development = [...Object.keys({ ...devDependencies, ...optionalDependencies }), 'code-server'];
  const typings = development.some((name) => name.startsWith('@types/')) ? ['@types/*'] : [];
  expect(Object.keys(workbench)).toContain('code-server');
  expect(named(document, 'For development').toSorted()).toEqual(
    [...development.filter((name) => !name.startsWith('@types/')), ...typings].toSorted(),
  );
});

it('every version is exact, and the lock file names no registry', async () => {
  const { dependencies, devDependencies, optionalDependencies } = await manifest('package.json');
  for (const [name, version] of Object.entries({ ...dependencies, ...devDependencies, ...optionalDependencies })) {
    expect(version, name).toMatch(/^\d+\.\d+\.\d+(?:-[\w.]+)?$/);
  }
  expect(await text('package-lock.json')).not.toMatch(/"resolved"/);
  expect(await text('.npmrc')).toContain('ignore-scripts=true');
});
