import path from 'node:path';
import { buffer } from 'node:stream/consumers';
import type { KernelConnection } from '../../src/client/kernel-connection.ts';
import type { ContractDigest } from '../../src/protocol/primitives.ts';
import type { SessionView } from '../../src/protocol/views.ts';
import { defaultSwitches } from '../../src/server/agent/defaults.ts';
import { createToolbox } from '../../src/server/agent/toolbox.ts';
import { unlimited } from '../../src/server/scope/scope-guard.ts';
import type { ContainerEngine } from '../../src/server/sandbox/engine.ts';
import { dist } from '../../scripts/lib/root.ts';
import { exampleRepo } from '../fixtures/example-repo.ts';
import { frozenContract } from '../fixtures/frozen-contract.ts';
import { prepareContract, sessionAt, startSession, turns, verified, writeScript } from '../fixtures/journey.ts';
import { startTestKernel } from '../fixtures/kernel.ts';
import { bytesOf, pathOf, sandboxBench, type SandboxBench } from '../fixtures/sandbox.ts';
import { ratio, time, timed, type Figure, type Suite } from './figures.ts';

/** Enough for a steady median on a shared machine; an engine exec takes about 70 ms, an attempt about a second. */
const toolSamples = 40;
const attemptSamples = 6;

/** A container of the same image that does nothing, without any of our limits: what the engine alone costs. */
async function bareContainer(bench: SandboxBench): Promise<string> {
  return bench.engine.create({
    Image: bench.image.digest,
    Labels: { 'escrow.product': 'escrow', 'escrow.home': bench.homeId, 'escrow.purpose': 'attempt' },
    Entrypoint: ['/bin/sleep'],
    Cmd: ['600'],
    HostConfig: { NetworkMode: 'none', LogConfig: { Type: 'none', Config: {} } },
  });
}

async function killAndWait(engine: ContainerEngine, id: string): Promise<void> {
  await engine.kill(id);
  await engine.waitUntilStopped(id, 30_000);
}

/** A tool call through policy, audit and channel, against an engine exec that reads the same file. */
async function toolCalls(bench: SandboxBench): Promise<readonly Figure[]> {
  const text = '"""Usage."""\n' + 'value = 1\n'.repeat(100);
  const sandbox = await bench.provision({
    files: [{ path: pathOf('src/usage.py'), mode: 0o644, bytes: bytesOf(text) }],
    readable: [pathOf('src/usage.py')],
    writable: [pathOf('src/usage.py')],
  });
  const toolbox = createToolbox(frozenContract({ readable: ['src/usage.py'] }), defaultSwitches, sandbox, unlimited);
  const view = { tool: 'file_editor', command: 'view', path: '/workspace/src/usage.py', range: null } as const;
  const never = new AbortController().signal;
  const ours: number[] = [];
  const bare: number[] = [];
  for (let n = -2; n < toolSamples; n += 1) {
    const call = await timed(async () => {
      const outcome = await toolbox.act(view, never);
      if (!outcome.ok) throw new Error(outcome.text);
    });
    const exec = await timed(async () => {
      const { output } = await bench.engine.exec(sandbox.engineId, ['cat', '/workspace/src/usage.py']);
      if (!(await buffer(output)).includes('Usage')) throw new Error('the exec did not read the file');
    });
    // The first rounds warm both sides up.
    if (n < 0) continue;
    ours.push(call);
    bare.push(exec);
  }
  return [time('tool_call', ours), time('engine_exec', bare), ratio('tool_call_to_engine_exec', ours, bare, '< 0.1')];
}

/** Milliseconds from the reservation of a session's first attempt to its first tool, by the Kernel's record. */
async function startToFirstTool(kernel: KernelConnection, digest: ContractDigest, script: string): Promise<number> {
  const { session } = await startSession(kernel, digest, script, { attempts: 1 });
  const view = await sessionAt(kernel, session.id, 'verified', verified);
  const attempt = view.attempts[0];
  if (attempt === undefined || attempt.firstToolAt === null) throw new Error('no tool was called');
  return attempt.firstToolAt - attempt.reservedAt;
}

/** Milliseconds from the end of a window's connection until an observer sees the attempt settled and confirmed. */
async function closeToConfirmed(
  connect: () => Promise<KernelConnection>,
  observer: KernelConnection,
  digest: ContractDigest,
  script: string,
): Promise<number> {
  const window = await connect();
  const { session } = await startSession(window, digest, script, { attempts: 1 });
  const settledView = Promise.withResolvers<SessionView>();
  await sessionAt(
    observer,
    session.id,
    'at its first tool',
    (view) => typeof view.attempts[0]?.firstToolAt === 'number',
  );
  const end = observer.on('evidence/events', ({ events }) => {
    if (!events.some((event) => event.type === 'attempt.settled' && event.stream.includes(session.id))) return;
    void observer.call('session/get', { session: session.id }).then(settledView.resolve, settledView.reject);
  });
  const { seq } = await observer.call('session/get', { session: session.id });
  await observer.call('evidence/subscribe', { lastSeenSeq: seq });
  const ms = await timed(async () => {
    window.dispose();
    await settledView.promise;
  });
  end();
  const view = await settledView.promise;
  if (view.attempts[0]?.settlement?.confirmed !== true) throw new Error('the stop was not confirmed');
  return ms;
}

export const spine: Suite = {
  name: 'spine',
  async run(say) {
    const bench = await sandboxBench();
    const repo = await exampleRepo();
    const kernel = await startTestKernel({ entry: path.join(dist, 'kernel.cjs') });
    try {
      say(`tool call against engine exec, ${toolSamples} pairs`);
      const figures: Figure[] = [...(await toolCalls(bench))];

      const digest = await prepareContract(kernel.kernel, repo.contract);
      const quick = await writeScript(kernel.home, 'quick', [turns.view, turns.edit, turns.finish]);
      say(`attempt start to first tool against a bare container start, ${attemptSamples} pairs`);
      const firstTool: number[] = [];
      const bareStart: number[] = [];
      for (let n = 0; n < attemptSamples; n += 1) {
        firstTool.push(await startToFirstTool(kernel.kernel, digest, quick));
        bareStart.push(
          await timed(async () => {
            await bench.engine.start(await bareContainer(bench));
          }),
        );
      }
      figures.push(
        time('attempt_start_to_first_tool', firstTool),
        time('bare_container_start', bareStart),
        ratio('attempt_start_to_bare_start', firstTool, bareStart, '< 5'),
      );

      const hold = await writeScript(kernel.home, 'hold', [
        turns.view,
        { ...turns.edit, holdUntilFile: path.join(kernel.home, 'never') },
      ]);
      say(`window close to confirmed stop against a bare kill and wait, ${attemptSamples} pairs`);
      const closed: number[] = [];
      const killed: number[] = [];
      const connect = (): Promise<KernelConnection> =>
        kernel.connect({ kind: 'window', graceMs: 0, onClose: 'settle' });
      for (let n = 0; n < attemptSamples; n += 1) {
        closed.push(await closeToConfirmed(connect, kernel.kernel, digest, hold));
        const id = await bareContainer(bench);
        await bench.engine.start(id);
        killed.push(await timed(() => killAndWait(bench.engine, id)));
      }
      figures.push(
        time('window_close_to_confirmed_stop', closed),
        time('bare_kill_and_wait', killed),
        ratio('window_close_to_bare_kill', closed, killed, '< 8'),
      );
      return figures;
    } finally {
      await kernel.dispose();
      await bench.dispose();
      await repo.dispose();
    }
  },
};
