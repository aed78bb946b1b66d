// The container engine as the Kernel of this user chooses it: set-up and tests must prepare the one that Escrow uses.
import { homedir } from 'node:os';
import { homePath } from '../../src/protocol/home.ts';
import { EscrowError } from '../../src/protocol/errors.ts';
import { ContainerEngine } from '../../src/server/sandbox/engine.ts';
import { EngineFault } from '../../src/server/sandbox/engine-fault.ts';
import { engineChoice, surroundingsHere, type EngineChoice } from '../../src/server/sandbox/engine-choice.ts';
import { readSettings } from '../../src/server/settings.ts';
import { SetupError } from './ui.ts';

/** What this user's machine settings name as engine; null: nothing. Throws SetupError where they can't be read. */
export async function engineSetting(): Promise<string | null> {
  try {
    return (await readSettings(homePath(), process.env)).engineHost;
  } catch (error) {
    throw setupError(error);
  }
}

/** Which engine, and who named it. `setting` null: as in a fresh state folder, which tests have. Throws SetupError. */
export function engineChoiceHere(setting: string | null = null): EngineChoice {
  try {
    return engineChoice(setting, surroundingsHere(homedir()));
  } catch (error) {
    throw setupError(error);
  }
}

/** That engine; nothing is asked of it yet. Throws SetupError. */
export function engineHere(setting: string | null = null): ContainerEngine {
  return new ContainerEngine(engineChoiceHere(setting).address);
}

/** The same failure as a step that could not be done, with what to do; a defect as it is. */
export function setupError(error: unknown): unknown {
  if (EngineFault.is(error, 'unsupported')) {
    return new SetupError(error.message, 'Name an engine on this machine in DOCKER_HOST, or choose another context.');
  }
  if (EngineFault.is(error)) return new SetupError(error.message, 'Check the container engine: docker info');
  if (EscrowError.is(error)) return new SetupError(error.message, error.next);
  return error;
}
