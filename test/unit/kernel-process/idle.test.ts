import { expect, test } from 'vitest';
import { processState } from '../../../src/protocol/process-identity.ts';
import { readEndpoint } from '../../../src/protocol/endpoint.ts';
import { eventually, startTestKernel } from '../../fixtures/kernel.ts';

test.each([0, 200])('the composed Kernel ends by itself once nobody is expected (grace %i ms)', async (graceMs) => {
  const { kernel, home, dispose } = await startTestKernel({
    hello: { graceMs },
    environment: { ESCROW_IDLE_EXIT_MS: '50' },
  });
  try {
    const endpoint = await readEndpoint(home);
    if (endpoint === undefined) throw new Error('no endpoint');
    kernel.dispose();
    await kernel.closed;
    const gone = async (): Promise<boolean> => (await processState(endpoint.pid, endpoint.processStart)) === 'dead';
    await eventually('the Kernel has ended', gone);
    expect(await readEndpoint(home)).toBeUndefined();
  } finally {
    await dispose();
  }
});
