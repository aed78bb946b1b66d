// npm run bench -- SUITE [--json]: measures and prints. With --json the last line is {"suite", "figures"}.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { parseArgs } from 'node:util';
import { bundle, bundleNames, copyAssets } from '../../scripts/lib/bundle.ts';
import { setUp } from '../../scripts/lib/set-up.ts';
import { createUi, reportFailure } from '../../scripts/lib/ui.ts';
import { meets, type Suite } from './figures.ts';
import { inference } from './inference.ts';
import { lifecycle } from './lifecycle.ts';
import { sandboxSuite } from './sandbox.ts';
import { spine } from './spine.ts';

const suites: readonly Suite[] = [spine, lifecycle, inference, sandboxSuite];

const { values, positionals } = parseArgs({
  options: { json: { type: 'boolean' }, yes: { type: 'boolean' } },
  allowPositionals: true,
});

async function main(): Promise<void> {
  const suite = suites.find((each) => each.name === positionals[0]);
  if (suite === undefined || positionals.length !== 1) {
    process.stderr.write(`error: name one suite\n→ There are: ${suites.map((each) => each.name).join(', ')}\n`);
    process.exitCode = 2;
    return;
  }
  const missing = (suite.nodeFlags ?? []).filter((flag) => !process.execArgv.includes(flag));
  if (missing.length > 0) {
    const child = spawn(process.execPath, [...missing, ...process.argv.slice(1)], { stdio: 'inherit' });
    const [code] = await once(child, 'exit');
    process.exitCode = typeof code === 'number' ? code : 1;
    return;
  }
  await setUp(createUi(values.yes === true), { engine: true, workbench: false });
  await Promise.all([...bundleNames.map((name) => bundle(name, false)), copyAssets()]);
  const figures = await suite.run((line) => process.stderr.write(`bench: ${line}\n`));
  for (const figure of figures) {
    const aim = figure.aim === null ? '' : `  aim ${figure.aim}  ${meets(figure) ? 'met' : 'MISSED'}`;
    process.stderr.write(
      `${figure.name.padEnd(34)} ${String(figure.value).padStart(10)} ${figure.unit.padEnd(6)}${aim}\n`,
    );
  }
  if (values.json === true) process.stdout.write(`${JSON.stringify({ suite: suite.name, figures })}\n`);
}

try {
  await main();
} catch (error) {
  reportFailure(error);
}
