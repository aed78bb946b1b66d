// npm test [-- LAYER…] [--full] [--yes] [-- FILTER…]: sets up what the layers need, builds, runs the static checks
// (when all layers run) and the tests. The last line is "N passed, N failed, N skipped".
import { parseArgs } from 'node:util';
import { bundle, bundleNames, copyAssets } from './lib/bundle.ts';
import { runChecks } from './lib/checks.ts';
import { run } from './lib/run.ts';
import { beginSetUp, type SetUpUnderWay } from './lib/set-up.ts';
import { createUi, failureText, reportFailure } from './lib/ui.ts';
import { layers, podmanFiles, runLayer, type Counts, type Layer, type LayerResult } from './lib/vitest.ts';

const { values, positionals } = parseArgs({
  options: { full: { type: 'boolean' }, yes: { type: 'boolean' }, only: { type: 'string', multiple: true } },
  allowPositionals: true,
});
const full = values.full === true;

const started = performance.now();
const secondsSince = (since: number): string => ((performance.now() - since) / 1000).toFixed(0);
let total: Counts = { passed: 0, failed: 0, skipped: 0 };
const failures: string[] = [];

function add(name: string, counts: LayerResult, since: number): void {
  failures.push(...counts.failures);
  total = {
    passed: total.passed + counts.passed,
    failed: total.failed + counts.failed,
    skipped: total.skipped + counts.skipped,
  };
  process.stderr.write(
    `test: ${name}: ${counts.passed} passed, ${counts.failed} failed, ${counts.skipped} skipped (${secondsSince(since)} s)\n`,
  );
}

const setUpFailed = (error: unknown): LayerResult => ({
  passed: 0,
  failed: 1,
  skipped: 0,
  failures: [`set-up: ${failureText(error).replaceAll('\n', '\n    ')}`],
});

/** Begins set-up and builds, as far as static checks and unit tests need it. Null where that failed. */
async function begin(wanted: readonly Layer[]): Promise<SetUpUnderWay | null> {
  let underWay: SetUpUnderWay | undefined;
  try {
    underWay = await beginSetUp(createUi(values.yes === true), {
      engine: wanted.some((layer) => layer !== 'unit'),
      podman: wanted.includes('sandbox'),
      pip: wanted.includes('sandbox'),
      tracer: wanted.includes('unit'),
      llama: full && wanted.includes('unit'),
      workbench: wanted.includes('e2e'),
    });
    await underWay.basics;
    await Promise.all([...bundleNames.map((name) => bundle(name, false)), copyAssets()]);
    // In a full run unit tests use a server that set-up brings.
    if (full) await underWay.done;
    return underWay;
  } catch (error) {
    // What installs packages is not left in the middle.
    await underWay?.done.catch(() => undefined);
    reportFailure(error);
    add('set-up', setUpFailed(error), started);
    return null;
  }
}

/** Waits for the rest of set-up; whether all of it is there. */
async function ready({ done }: SetUpUnderWay): Promise<boolean> {
  const since = performance.now();
  try {
    await done;
    process.stderr.write(`test: set-up is done (waited ${secondsSince(since)} s for the rest of it)\n`);
    return true;
  } catch (error) {
    add('set-up', setUpFailed(error), started);
    return false;
  }
}

async function runOne(layer: Layer): Promise<void> {
  const since = performance.now();
  add(layer, await runLayer(layer, { full, filters: values.only ?? [] }), since);
  const podman = layer === 'sandbox' && full && (await run('podman', ['--version']).catch(() => null));
  if (podman !== null && podman !== false && podman.code === 0) {
    const again = performance.now();
    const env = { ESCROW_TEST_ENGINE: 'podman' };
    add('sandbox on Podman', await runLayer(layer, { full: true, filters: podmanFiles, env }), again);
  }
}

async function main(): Promise<void> {
  const unknown = positionals.find((name) => !layers.some((layer) => layer === name));
  if (unknown !== undefined) {
    process.stderr.write(`error: no layer is called ${unknown}\n→ There are: ${layers.join(', ')}\n`);
    process.exitCode = 2;
    return;
  }
  const all = positionals.length === 0;
  const wanted = all ? layers : (positionals as Layer[]);
  const underWay = await begin(wanted);
  // Neither needs an engine, an image or a browser: those are fetched meanwhile.
  if (all && underWay !== null) {
    const since = performance.now();
    add('static checks', { ...(await runChecks()), skipped: 0 }, since);
  }
  const sound = total.failed === 0;
  if (sound && wanted.includes('unit')) await runOne('unit');
  if (underWay !== null && (await ready(underWay)) && sound) {
    for (const layer of wanted.filter((each) => each !== 'unit')) await runOne(layer);
  }
  for (const failure of failures) process.stderr.write(`test: FAILED ${failure}\n`);
  process.stderr.write(`test: ${((performance.now() - started) / 60_000).toFixed(1)} min in all\n`);
  process.exitCode = total.failed === 0 ? 0 : 1;
  process.stdout.write(`${total.passed} passed, ${total.failed} failed, ${total.skipped} skipped\n`);
}

await main();
