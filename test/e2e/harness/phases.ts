import { afterAll } from 'vitest';

const spent = new Map<string, { times: number; ms: number }>();

/** Does work and counts how long it took under a name. With `ESCROW_E2E_TIMES=1` each file ends with the sums. */
export async function phase<T>(name: string, work: () => T | Promise<T>): Promise<T> {
  const from = performance.now();
  try {
    return await work();
  } finally {
    const entry = spent.get(name) ?? { times: 0, ms: 0 };
    spent.set(name, { times: entry.times + 1, ms: entry.ms + performance.now() - from });
  }
}

if (process.env['ESCROW_E2E_TIMES'] === '1') {
  afterAll(() => {
    for (const [name, { times, ms }] of [...spent].toSorted(([, a], [, b]) => b.ms - a.ms)) {
      process.stdout.write(`time: ${(ms / 1000).toFixed(1)} s in ${times} × ${name}\n`);
    }
  });
}
