import type { Command } from '../command.ts';
import { candidateCommands } from './candidate.ts';
import { contractCommands } from './contract.ts';
import { doctor } from './doctor.ts';
import { engineCommands } from './engine.ts';
import { imageCommands } from './image.ts';
import { kernelCommands } from './kernel.ts';
import { sessionCommands } from './session.ts';
import { reconcile } from './session-reconcile.ts';
import { salvageCommands } from './salvage.ts';
import { stateCommands } from './state.ts';

/** Every command, in the order of the overview. */
export const commands: readonly Command[] = [
  doctor,
  ...kernelCommands,
  ...stateCommands,
  ...contractCommands,
  ...imageCommands,
  ...sessionCommands,
  reconcile,
  ...candidateCommands,
  ...salvageCommands,
  ...engineCommands,
];
