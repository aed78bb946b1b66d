import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { execFile } from 'node:child_process';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { bundle } from '../../../scripts/lib/bundle.ts';
import { ownTarget, packageVsix, stageExtension, vsixTargets } from '../../../scripts/lib/package-vsix.ts';
import { endKernel } from '../../fixtures/kernel.ts';

/** All that an installed extension may hold, and the most that it may weigh: 3.0 MiB when this was written. */
const wanted =
  /^(package\.json|package\.nls(\.[\w-]+)?\.json|README\.md|LICENSE|CHANGELOG\.md|THIRD-PARTY-NOTICES\.txt|l10n\/[\w.-]+\.json|media\/.+\.(svg|png|json|md|css|js)|docs\/images\/.+\.png|dist\/(cli|executor|extension|kernel|scope)\.cjs|dist\/grammars\/tree-sitter(-(javascript|python|tsx|typescript))?\.wasm|dist\/prebuilds\/[\w-]+\.node|dist\/examples\/.+)$/;
const mostBytes = 6 * 1_048_576;

describe('the packaged extension', () => {
  let folder: string;
  beforeAll(async () => {
    folder = await mkdtemp(path.join(tmpdir(), 'escrow-vsix-test-'));
  });
  afterAll(() => rm(folder, { recursive: true, force: true }));

  it('holds only what runs, for one platform', async () => {
    const target = ownTarget();
    const { files, bytes } = await packageVsix(target, folder);
    expect(files.filter((file) => !wanted.test(file))).toEqual([]);
    expect(files).toEqual(
      expect.arrayContaining([
        'package.json',
        'LICENSE',
        'THIRD-PARTY-NOTICES.txt',
        'dist/cli.cjs',
        'dist/executor.cjs',
        'dist/extension.cjs',
        'dist/kernel.cjs',
        'dist/scope.cjs',
        'dist/grammars/tree-sitter.wasm',
        'dist/grammars/tree-sitter-python.wasm',
        'dist/examples/utc-timestamp/utc-timestamp.contract.jsonc',
        'dist/examples/utc-timestamp/rehearsal.json',
      ]),
    );
    expect(files.filter((file) => file.startsWith('dist/prebuilds/'))).toEqual([
      `dist/prebuilds/${vsixTargets[target]}.node`,
    ]);
    expect(bytes).toBeLessThan(mostBytes);
  });

  it('runs by itself: its command line starts its Kernel', async () => {
    const extension = path.join(folder, 'staged');
    await stageExtension(ownTarget(), extension);
    const manifest = JSON.parse(await readFile(path.join(extension, 'package.json'), 'utf8')) as Record<
      string,
      unknown
    >;
    expect(manifest).not.toHaveProperty('scripts');
    expect(manifest).not.toHaveProperty('devDependencies');
    const home = path.join(folder, 'home');
    try {
      const { stdout } = await promisify(execFile)(
        process.execPath,
        [path.join(extension, 'dist', 'cli.cjs'), 'kernel', 'start', '--json'],
        { cwd: folder, env: { PATH: '/usr/bin:/bin', HOME: folder, ESCROW_HOME: home } },
      );
      expect(JSON.parse(stdout)).toMatchObject({ home, storage: { state: 'ok' } });
    } finally {
      await endKernel(home);
    }
  });

  it('has an executor of the same bytes as a development build', async () => {
    const development = path.join(folder, 'development');
    const production = path.join(folder, 'production');
    await bundle('executor', false, development);
    await bundle('executor', true, production);
    expect(await readFile(path.join(production, 'executor.cjs'))).toEqual(
      await readFile(path.join(development, 'executor.cjs')),
    );
  });
});
