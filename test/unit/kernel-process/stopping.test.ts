import { expect, test } from 'vitest';
import type { NotificationParams } from '../../../src/protocol/methods.ts';
import { bareKernelEntry, startTestKernel } from '../../fixtures/kernel.ts';

test('a Kernel that is stopped says so to every client before the connections end', async () => {
  const { kernel, connect, dispose } = await startTestKernel();
  try {
    const window = await connect({ kind: 'window', clientId: 'window-of-a-test' });
    const heard: NotificationParams<'kernel/stopping'>[] = [];
    window.on('kernel/stopping', (params) => heard.push(params));
    await kernel.call('kernel/stop', { settle: true });
    await window.closed;
    expect(heard).toEqual([{ reason: 'stop' }]);
  } finally {
    await dispose();
  }
});

test('who asked a Kernel to stop is answered, also where its connections end before the answer is there', async () => {
  const { kernel, dispose } = await startTestKernel({ entry: bareKernelEntry });
  try {
    expect(await kernel.call('kernel/stop', { settle: true })).toEqual({ stopping: true });
    await kernel.closed;
  } finally {
    await dispose();
  }
});
