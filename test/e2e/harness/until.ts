import { setTimeout as delay } from 'node:timers/promises';

/**
 * Asks `probe` until it gives something other than undefined; for facts of other processes that send no event (a
 * process is gone, a file has bytes). Rejects after `timeoutMs` with `what`.
 */
export async function until<T>(
  what: string,
  timeoutMs: number,
  probe: () => T | undefined | Promise<T | undefined>,
): Promise<T> {
  const deadline = performance.now() + timeoutMs;
  for (;;) {
    const value = await probe();
    if (value !== undefined) return value;
    if (performance.now() >= deadline) throw new Error(`not within ${timeoutMs} ms: ${what}`);
    await delay(50);
  }
}
