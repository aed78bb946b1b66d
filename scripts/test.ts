// npm test [-- LAYER…] [--full] [--yes] [-- FILTER…]: sets up what the layers need, builds, runs the static checks
// (when all layers run) and the tests. The last line is "N passed, N failed, N skipped".
import { parseArgs } from 'node:util';
import { bundle, bundleNames, copyAssets } from './lib/bundle.ts';
import { runChecks } from './lib/checks.ts';
import { run } from './lib/run.ts';
import { setUp } from './lib/set-up.ts';
import { createUi, reportFailure } from './lib/ui.ts';
import { layers, podmanFiles, runLayer, type Counts, type Layer, type LayerResult } from './lib/vitest.ts';

const { values, positionals } = parseArgs({
  options: { full: { type: 'boolean' }, yes: { type: 'boolean' }, only: { type: 'string', multiple: true } },
  allowPositionals: true,
});

async function main(): Promise<void> {
  const unknown = positionals.find((name) => !layers.some((layer) => layer === name));
  if (unknown !== undefined) {
    process.stderr.write(`error: no layer is called ${unknown}\n→ There are: ${layers.join(', ')}\n`);
    process.exitCode = 2;
    return;
  }
  const all = positionals.length === 0;
  const wanted = all ? layers : (positionals as Layer[]);
  const started = performance.now();
  let total: Counts = { passed: 0, failed: 0, skipped: 0 };
  const failures: string[] = [];
  const add = (name: string, counts: LayerResult, since: number): void => {
    failures.push(...counts.failures);
    total = {
      passed: total.passed + counts.passed,
      failed: total.failed + counts.failed,
      skipped: total.skipped + counts.skipped,
    };
    const seconds = ((performance.now() - since) / 1000).toFixed(0);
    process.stderr.write(
      `test: ${name}: ${counts.passed} passed, ${counts.failed} failed, ${counts.skipped} skipped (${seconds} s)\n`,
    );
  };

  try {
    // Unit tests need packages and bundles only; every other layer needs the engine.
    await setUp(createUi(values.yes === true), {
      engine: wanted.some((layer) => layer !== 'unit'),
      podman: wanted.includes('sandbox'),
      pip: wanted.includes('sandbox'),
      llama: values.full === true && wanted.includes('unit'),
      workbench: wanted.includes('e2e'),
    });
    await Promise.all([...bundleNames.map((name) => bundle(name, false)), copyAssets()]);
  } catch (error) {
    reportFailure(error);
    add('set-up', { passed: 0, failed: 1, skipped: 0, failures: ['set-up: see its error above'] }, started);
  }
  if (all && total.failed === 0) {
    const since = performance.now();
    add('static checks', { ...(await runChecks()), skipped: 0 }, since);
  }
  for (const layer of total.failed === 0 ? wanted : []) {
    const since = performance.now();
    add(layer, await runLayer(layer, { full: values.full === true, filters: values.only ?? [] }), since);
    const podman =
      layer === 'sandbox' && values.full === true && (await run('podman', ['--version']).catch(() => null));
    if (podman !== null && podman !== false && podman.code === 0) {
      const again = performance.now();
      const env = { ESCROW_TEST_ENGINE: 'podman' };
      add('sandbox on Podman', await runLayer(layer, { full: true, filters: podmanFiles, env }), again);
    }
  }
  for (const failure of failures) process.stderr.write(`test: FAILED ${failure}\n`);
  process.stderr.write(`test: ${((performance.now() - started) / 60_000).toFixed(1)} min in all\n`);
  process.exitCode = total.failed === 0 ? 0 : 1;
  process.stdout.write(`${total.passed} passed, ${total.failed} failed, ${total.skipped} skipped\n`);
}

await main();
