import { execFile } from 'node:child_process';
import { copyFile, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';

const root = path.resolve(import.meta.dirname, '../..');

const refused = [
  ['src/protocol', '../server/kernel.ts'],
  ['src/protocol', 'vscode'],
  ['src/client', '../server/kernel.ts'],
  ['src/extension', '../server/kernel.ts'],
  ['src/extension', '../cli/run.ts'],
  ['src/extension', 'better-sqlite3'],
  ['src/executor', '../server/kernel.ts'],
  ['src/cli', '../server/kernel.ts'],
  ['src/cli', 'vscode'],
  ['src/server/session', '../../client/find-kernel.ts'],
  ['src/server/session', 'vscode'],
  ['src/server/session', 'dockerode'],
  ['src/server/session', 'ollama'],
  ['src/server/session', 'better-sqlite3'],
  ['src/server/session', '@vscode/tree-sitter-wasm'],
  ['src/server/scope', 'better-sqlite3'],
  ['src/server/sandbox', 'ollama'],
  ['src/server/inference', 'dockerode'],
  ['src/server/store', 'dockerode'],
] as const;
const allowed = [
  ['src/extension', 'vscode'],
  ['src/extension', '../protocol/errors.ts'],
  ['src/cli', '../client/find-kernel.ts'],
  ['src/server/sandbox', 'dockerode'],
  ['src/server/inference', 'ollama'],
  ['src/server/store', 'better-sqlite3'],
  ['src/server/scope', '@vscode/tree-sitter-wasm'],
  ['src/server/session', '../../protocol/errors.ts'],
] as const;

/** A file of its own for each import, so that a report names the import. */
const placeOf = (folder: string, specifier: string): string => `${folder}/${specifier.replaceAll(/[^a-z]+/g, '-')}.ts`;

interface Report {
  readonly diagnostics: readonly { readonly code: string; readonly filename: string }[];
}

describe('layering rules of the linter', () => {
  let folder: string;
  let restricted: ReadonlySet<string>;

  beforeAll(async () => {
    folder = await mkdtemp(path.join(tmpdir(), 'escrow-layering-'));
    await copyFile(path.join(root, '.oxlintrc.json'), path.join(folder, '.oxlintrc.json'));
    for (const [place, specifier] of [...refused, ...allowed]) {
      const file = path.join(folder, placeOf(place, specifier));
      await mkdir(path.dirname(file), { recursive: true });
      await writeFile(file, `import * as it from '${specifier}';\nexport const one = it;\n`);
    }
    const { promise, resolve } = Promise.withResolvers<string>();
    const oxlint = path.join(root, 'node_modules', '.bin', 'oxlint');
    execFile(oxlint, ['--format', 'json', 'src'], { cwd: folder }, (_, stdout) => resolve(stdout));
    const report = JSON.parse(await promise) as Report;
    restricted = new Set(
      report.diagnostics
        .filter((each) => each.code === 'eslint(no-restricted-imports)')
        .map((each) => path.relative(folder, path.resolve(folder, each.filename))),
    );
  });
  afterAll(() => rm(folder, { recursive: true, force: true }));

  it.each(refused)('refuse in %s an import of %s', (place, specifier) => {
    expect(restricted).toContain(placeOf(place, specifier));
  });

  it.each(allowed)('allow in %s an import of %s', (place, specifier) => {
    expect(restricted).not.toContain(placeOf(place, specifier));
  });
});
