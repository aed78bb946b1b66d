// npm run setup [-- --yes] [--base IMAGE] [--workbench]: everything that Escrow needs on this machine.
import { parseArgs } from 'node:util';
import { engineSetting } from './lib/engine-here.ts';
import { setUp } from './lib/set-up.ts';
import { createUi, reportFailure } from './lib/ui.ts';

const { values } = parseArgs({
  options: { yes: { type: 'boolean' }, workbench: { type: 'boolean' }, base: { type: 'string' } },
});
try {
  const ui = createUi(values.yes === true);
  await setUp(ui, {
    engine: true,
    engineSetting: await engineSetting(),
    base: values.base,
    workbench: values.workbench === true,
  });
  ui.log('done');
} catch (error) {
  reportFailure(error);
}
