import { readFileSync } from 'node:fs';
import { stat } from 'node:fs/promises';
import { Socket } from 'node:net';
import { sha256 } from '../protocol/hash.ts';
import { Outbox } from './outbox.ts';
import { readOut } from './read-out.ts';
import { Supervisor } from './supervisor.ts';

/** What a pipe holds on Linux. */
const inputBytes = 64 * 1024;

/** The one program in the image: the supervisor, or with `read-out` the reader of last resort. */
async function main(): Promise<void> {
  process.umask(0o022);
  if (process.argv[2] === 'read-out') {
    await readOut(process.argv.slice(3), process.stdout);
    return;
  }
  // Ending all workers ends every process that this one can see: it must be the child of a container's own init.
  if (process.ppid !== 1) throw new Error('this is no container with an init and a process table of its own');
  const nonce = process.env['ESCROW_NONCE'];
  if (nonce === undefined || !/^[0-9a-f]{32}$/.test(nonce)) throw new Error('ESCROW_NONCE is missing');
  delete process.env['ESCROW_NONCE'];
  // At the process limit a cold thread pool would abort the process (facts/feasibility): warm it while there is room.
  await stat('/');
  const supervisor = new Supervisor(
    { nonce, executor: sha256(readFileSync(import.meta.filename)), node: process.version },
    new Outbox(process.stdout, process.stdout.fd),
    () => process.exit(0),
  );
  // One buffer for all that comes: what arrives is looked at, or written, before more is read.
  const buffer = Buffer.allocUnsafeSlow(inputBytes);
  const callback = (length: number): boolean => {
    supervisor.receive(buffer.subarray(0, length));
    return true;
  };
  const input = new Socket({ fd: 0, readable: true, writable: false, onread: { buffer, callback } });
  // The end of a client is not the end of the bytes.
  input.on('error', () => {});
  input.resume();
  // The bytes live as long as this process does: a defect ends the work, not the process.
  let reported = 0;
  const defect = (error: unknown) => {
    reported += 1;
    if (reported <= 20) process.stderr.write(`executor: defect: ${String(error).slice(0, 2000)}\n`);
    supervisor.distrust();
  };
  process.on('uncaughtException', defect);
  process.on('unhandledRejection', defect);
  process.on('SIGUSR2', () => void supervisor.hold());
  for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP', 'SIGPIPE'] as const) process.on(signal, () => {});
}

main().catch((error: unknown) => {
  process.stderr.write(`executor: ${String(error)}\n`);
  process.exit(1);
});
