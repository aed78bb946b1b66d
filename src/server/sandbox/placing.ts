import { channelBounds, manifestDigest, type Policy } from '../../protocol/executor.ts';
import { digestOf, sha256 } from '../../protocol/hash.ts';
import type { FileEntry } from '../../protocol/primitives.ts';
import type { Channel } from './channel.ts';
import { tooLarge } from './live-sandbox.ts';
import { SandboxFault, type SandboxSpec } from './port.ts';

/** Bytes of files that were read and whose arrival is not known yet; a file that is larger is alone. */
const aheadBytes = 8 * 1024 * 1024;
/** Files that are read at once: twice what the thread pool takes. */
const readsAtOnce = 8;

/**
 * Sends the policy and all files, as many ahead of their answers as may be in memory, and compares what the supervisor
 * has with what was meant. `step` is how each wait is made. Throws SandboxFault, what reading a file rejects with, and
 * the first ExecutorRefusal: what follows it is refused as well.
 */
export async function place(
  channel: Pick<Channel, 'request'>,
  policy: Policy,
  { files, bytesOf }: Pick<SandboxSpec, 'files' | 'bytesOf'>,
  step: <T>(promise: Promise<T>) => Promise<T>,
): Promise<{ readonly files: number; readonly bytes: number }> {
  const tooLong = files.find(({ size }) => size > channelBounds.fileBytes);
  if (tooLong !== undefined) throw new SandboxFault('too-large', tooLarge(tooLong.path, tooLong.size));
  /** Without the members that only their owner knows. */
  const entries = files.map(({ path, mode, size, sha256: hash }) => ({ path, mode, size, sha256: hash }));
  const reading: { readonly entry: FileEntry; readonly bytes: Promise<Uint8Array> }[] = [];
  const asked: { readonly size: number; readonly answer: Promise<unknown> }[] = [];
  const ask = (size: number, answer: Promise<unknown>): void => {
    answer.catch(() => {});
    asked.push({ size, answer });
  };
  ask(0, opened(channel, policy));
  let held = 0;
  for (let next = 0; ;) {
    for (; reading.length < readsAtOnce; next += 1) {
      const entry = entries[next];
      if (entry === undefined || (held > 0 && held + entry.size > aheadBytes)) break;
      const bytes = bytesOf(entry);
      bytes.catch(() => {});
      reading.push({ entry, bytes });
      held += entry.size;
    }
    const read = reading.shift();
    if (read !== undefined) {
      ask(read.entry.size, placed(channel, read.entry, await step(read.bytes)));
      continue;
    }
    if (next === entries.length) break;
    // What is held was asked for: the first of it makes room.
    const oldest = asked.shift();
    if (oldest === undefined) throw new Error('no room, and nothing that would make some');
    await step(oldest.answer);
    held -= oldest.size;
  }
  const sealing = channel.request('seal', {});
  sealing.catch(() => {});
  for (const { answer } of asked) await step(answer);
  const { result } = await step(sealing);
  if (result.files !== entries.length || result.manifest !== manifestDigest(entries)) {
    throw new SandboxFault('channel', 'other files were placed than were meant');
  }
  return { files: result.files, bytes: result.bytes };
}

async function opened(channel: Pick<Channel, 'request'>, policy: Policy): Promise<void> {
  const json = Buffer.from(JSON.stringify(policy));
  const { result } = await channel.request('open', { size: json.length, sha256: sha256(json) }, { payload: json });
  if (result.policy !== digestOf(policy)) throw new SandboxFault('channel', 'another policy is in force');
}

async function placed(channel: Pick<Channel, 'request'>, entry: FileEntry, bytes: Uint8Array): Promise<void> {
  if (bytes.length !== entry.size) {
    throw new SandboxFault('invalid', `${entry.path} has ${bytes.length} bytes and not ${entry.size}`);
  }
  await channel.request('place', entry, { payload: bytes });
}
