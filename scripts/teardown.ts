// npm run teardown: ends what set-up started in the background. Packages and images stay.
import { stopOurDockerd } from './lib/engine.ts';
import { createUi, reportFailure } from './lib/ui.ts';

const ui = createUi(true);
try {
  if (!(await stopOurDockerd(ui))) ui.log('nothing to end: set-up started no container engine');
} catch (error) {
  reportFailure(error);
}
