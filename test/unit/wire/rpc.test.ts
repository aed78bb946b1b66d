import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { createMessageConnection } from 'vscode-jsonrpc/node';
import { findOrStartKernel } from '../../../src/client/find-kernel.ts';
import { messageTransports, type KernelConnection, type Progress } from '../../../src/client/kernel-connection.ts';
import { EscrowError } from '../../../src/protocol/errors.ts';
import { bareKernelEntry, eventually, startTestKernel, testHello, type TestKernel } from '../../fixtures/kernel.ts';

const digest = 'a'.repeat(64);
let shared: TestKernel;
let client: KernelConnection;

beforeAll(async () => {
  shared = await startTestKernel({ entry: bareKernelEntry });
});
afterAll(async () => {
  await shared.dispose();
});
beforeEach(async () => {
  client = await shared.connect();
  return () => client.dispose();
});

/** The same socket without the typed client: what any other program may send. */
async function rawConnection() {
  const kernel = await findOrStartKernel({
    home: shared.home,
    hello: testHello(),
    kernelPath: bareKernelEntry,
    nodePath: process.execPath,
    autostart: false,
  });
  const { reader, writer } = messageTransports(kernel);
  const rpc = createMessageConnection(reader, writer);
  rpc.listen();
  return { rpc, socket: kernel.socket };
}

const abortsOf = async (clientId: string): Promise<boolean> => {
  const { events } = await client.call('session/events', { session: 'ses_0123456789', limit: 1000 });
  return events.some((e) => (e.data as { client: string }).client === clientId);
};

describe('a request', () => {
  test('is answered', async () => {
    expect(await client.call('kernel/status', {})).toMatchObject({ pid: shared.pid });
  });

  test('with parameters that do not fit is InvalidParams and names the place', async () => {
    const wrong = client.call('contract/get', { digest: 'no digest' });
    await expect(wrong).rejects.toMatchObject({ code: 'InvalidParams', details: { faults: [{ path: 'digest' }] } });
    const { rpc } = await rawConnection();
    await expect(rpc.sendRequest('contract/get', { digest, more: 1 })).rejects.toMatchObject({ code: -32602 });
    await expect(rpc.sendRequest('contract/get', [1, 2])).rejects.toMatchObject({ code: -32602 });
    await expect(rpc.sendRequest('contract/get')).rejects.toMatchObject({ code: -32602 });
    rpc.end();
  });

  test('that a person can act on keeps its code, its words and its details', async () => {
    const failure = await client.call('contract/get', { digest }).catch((e: unknown) => e);
    expect(EscrowError.is(failure, 'NotFound')).toBe(true);
    expect(failure).toMatchObject({ message: 'no such contract', next: 'freeze it', details: { why: 'test' } });
  });

  test('that fails by a defect is Internal, without a stack on the wire but with one in the log', async () => {
    const failure = await client.call('contract/list', {}).catch((e: unknown) => e);
    expect(failure).toMatchObject({ code: 'Internal' });
    expect(JSON.stringify(failure)).not.toContain('bare-kernel.ts');
    expect(await shared.log()).toMatch(/a defect.*bare-kernel\.ts/);
  });

  test('of an unknown name is refused, also one that every object has', async () => {
    const { rpc } = await rawConnection();
    await expect(rpc.sendRequest('no/such', {})).rejects.toMatchObject({ code: -32601 });
    await expect(rpc.sendRequest('constructor', {})).rejects.toMatchObject({ code: -32601 });
    rpc.end();
  });

  test('whose answer is too large is an error, and the connection goes on', async () => {
    await expect(client.call('artefact/read', { sha256: digest })).rejects.toMatchObject({ code: 'Internal' });
    await client.call('kernel/status', {});
  });

  test('that is aborted is cancelled in the Kernel', async () => {
    const abort = new AbortController();
    const seen: Progress[] = [];
    const call = client.call(
      'contract/baseline',
      { digest },
      {
        signal: abort.signal,
        onProgress: (progress) => {
          seen.push(progress);
          if (progress.code === 'running') abort.abort();
        },
      },
    );
    await expect(call).rejects.toMatchObject({ code: 'Cancelled' });
    expect(seen).toEqual([
      { code: 'waiting', detail: 'in the queue', percent: null },
      { code: 'running', detail: 'half', percent: 50 },
    ]);
  });

  test('whose connection ends is aborted in the Kernel; for the client its outcome is not known', async () => {
    const other = await shared.connect({ clientId: 'test-goes-away' });
    let running: () => void;
    const started = new Promise<void>((resolve) => {
      running = resolve;
    });
    const call = other.call('contract/baseline', { digest }, { onProgress: () => running() });
    await started;
    const failure = expect(call).rejects.toMatchObject({ code: 'NoKernel' });
    other.dispose();
    await failure;
    await eventually('the handler was aborted', () => abortsOf('test-goes-away'));
  });

  test('after the end of the connection is refused at once', async () => {
    const other = await shared.connect();
    other.dispose();
    await other.closed;
    await expect(other.call('kernel/status', {})).rejects.toMatchObject({ code: 'NoKernel' });
  });

  test('beyond what one connection may have at once is refused', async () => {
    const { rpc, socket } = await rawConnection();
    const refused = Promise.any(
      Array.from({ length: 300 }, () =>
        rpc.sendRequest('contract/baseline', { digest }).then(
          () => Promise.reject(new Error('answered')),
          (error: { code: number }) => (error.code === -32600 ? error : Promise.reject(error as unknown as Error)),
        ),
      ),
    );
    expect(await refused).toMatchObject({ code: -32600 });
    socket.destroy();
  });
});

describe('a notification', () => {
  test('reaches every listener of its name, until it stops listening', async () => {
    const heard: string[] = [];
    const stop = client.on('kernel/changed', () => heard.push('a'));
    client.on('kernel/changed', () => heard.push('b'));
    await client.call('evidence/subscribe', { lastSeenSeq: 0 });
    await eventually('three notifications', () => heard.length === 6);
    stop();
    await client.call('evidence/subscribe', { lastSeenSeq: 0 });
    await eventually('three more', () => heard.length === 9);
    expect(heard.slice(6)).toEqual(['b', 'b', 'b']);
  });

  test('that is malformed or unknown does not hurt the connection', async () => {
    const { rpc } = await rawConnection();
    await rpc.sendNotification('no/such', { a: 1 });
    await rpc.sendNotification('textDocument/didOpen', { textDocument: 5 });
    await rpc.sendNotification('textDocument/didChange');
    await rpc.sendNotification('$/setTrace', { value: 'off' });
    await expect(rpc.sendRequest('kernel/status', {})).resolves.toBeDefined();
    rpc.end();
  });

  test('of a cancellation without an id ends that connection only', async () => {
    const { rpc, socket } = await rawConnection();
    const gone = new Promise((resolve) => {
      socket.once('close', resolve);
    });
    await rpc.sendNotification('$/cancelRequest');
    await gone;
    await client.call('kernel/status', {});
  });
});

describe('a question of the Kernel', () => {
  const ask = async (c: KernelConnection): Promise<unknown> => (await c.call('session/list', {})).sessions;
  test('is answered by the client', async () => {
    client.handle('editor/unsaved', ({ paths }) => ({ unsaved: paths.slice(1) }));
    expect(await ask(client)).toEqual(['/b']);
  });
  test('without an answer, with a wrong one or with a failure is unknown', async () => {
    expect(await ask(client)).toBe('unknown');
    client.handle('editor/unsaved', () => ({ unsaved: [7] }) as never);
    expect(await ask(client)).toBe('unknown');
    const failing = await shared.connect();
    failing.handle('editor/unsaved', () => {
      throw new Error('no');
    });
    expect(await ask(failing)).toBe('unknown');
    const silent = await shared.connect();
    silent.handle('editor/unsaved', () => new Promise(() => undefined));
    expect(await ask(silent)).toBe('unknown');
  });
});

describe('as a language server', () => {
  const uri = 'file:///tmp/x.contract.jsonc';
  const openDocument = (text: string) => ({ textDocument: { uri, languageId: 'jsonc', version: 1, text } });

  test('the Kernel initialises, follows edits with diagnostics, answers requests, and outlives exit', async () => {
    const { rpc, socket } = await rawConnection();
    const published: { version?: number; diagnostics: { message: string }[] }[] = [];
    rpc.onNotification('textDocument/publishDiagnostics', (p: (typeof published)[number]) => {
      published.push(p);
    });
    const initialized = await rpc.sendRequest<{ capabilities: Record<string, unknown> }>('initialize', {
      processId: null,
      rootUri: null,
      capabilities: {},
    });
    expect(initialized.capabilities).toMatchObject({ hoverProvider: true, positionEncoding: 'utf-16' });
    await rpc.sendNotification('initialized', {});
    await rpc.sendNotification('textDocument/didOpen', openDocument('ab'));
    const newest = (version: number): boolean => published.at(-1)?.version === version;
    await eventually('diagnostics of the opened text', () => newest(1));
    for (const version of [2, 3, 4]) {
      await rpc.sendNotification('textDocument/didChange', {
        textDocument: { uri, version },
        contentChanges: [{ range: { start: { line: 0, character: 1 }, end: { line: 0, character: 1 } }, text: 'xyz' }],
      });
    }
    await eventually('diagnostics of the edited text', () => newest(4));
    expect(published.at(-1)).toMatchObject({ diagnostics: [{ message: '/tmp/x.contract.jsonc: 11' }] });
    const at = { textDocument: { uri }, position: { line: 0, character: 0 } };
    await expect(rpc.sendRequest('textDocument/completion', at)).resolves.toEqual([{ label: 'instruction' }]);
    await expect(rpc.sendRequest('textDocument/hover', at)).resolves.toEqual({ contents: 'hover' });
    await expect(rpc.sendRequest('textDocument/hover', { textDocument: { uri: 'file:///other' } })).resolves.toBeNull();
    await rpc.sendNotification('textDocument/didClose', { textDocument: { uri } });
    await eventually('no more diagnostics', () => published.at(-1)?.diagnostics.length === 0);
    await expect(rpc.sendRequest('shutdown')).resolves.toBeNull();
    const gone = new Promise((resolve) => {
      socket.once('close', resolve);
    });
    await rpc.sendNotification('exit');
    await gone;
    await client.call('kernel/status', {});
  });
});

test('two connections of one client are told apart by their number', async () => {
  await shared.connect({ clientId: 'test-reloaded' });
  await shared.connect({ clientId: 'test-reloaded' });
  const numbers: number[] = [];
  // The line is written after the handshake's last answer: a client may be there before it.
  await eventually('both connections are in the log', async () => {
    const lines = (await shared.log()).split('\n').filter((line) => line.includes('test-reloaded'));
    numbers.splice(
      0,
      2,
      ...lines.map((line) => (JSON.parse(line) as { data: { connection: number } }).data.connection),
    );
    return numbers.length >= 2;
  });
  expect(numbers[1]).toBeGreaterThan(numbers[0]!);
});

test('with execution off, writes are refused and reads go on', async () => {
  const off = await startTestKernel({ entry: bareKernelEntry, environment: { ESCROW_EXECUTION_ENABLED: 'false' } });
  try {
    await expect(off.kernel.call('contract/baseline', { digest })).rejects.toMatchObject({ code: 'ExecutionDisabled' });
    await off.kernel.call('kernel/status', {});
    await off.kernel.call('session/detach', { session: 'ses_0123456789' });
  } finally {
    await off.dispose();
  }
});
