import { setTimeout as delay } from 'node:timers/promises';
import { SetupError, type Ui } from './ui.ts';

/** Before the second and the third try: what fails of a network or a mirror mostly works a little later. */
export const usualPausesMs: readonly number[] = [5_000, 20_000];

/**
 * A step of set-up that fetches something, tried again after each pause where it failed. Throws what the last try threw;
 * what is no SetupError is a defect and thrown at once.
 */
export async function tryAgain<T>(
  { log }: Pick<Ui, 'log'>,
  step: () => Promise<T>,
  pausesMs: readonly number[] = usualPausesMs,
): Promise<T> {
  for (const pauseMs of pausesMs) {
    try {
      return await step();
    } catch (error) {
      if (!(error instanceof SetupError)) throw error;
      log(`${error.message}; it is tried again in ${pauseMs / 1000} s`);
      await delay(pauseMs);
    }
  }
  return step();
}
