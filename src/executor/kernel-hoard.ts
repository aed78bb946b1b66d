import { closeSync, openSync, readSync } from 'node:fs';

/**
 * What a command can have the kernel keep that no control group is charged for, so that no limit of the container ends
 * it: buffers of sockets (v1: of all but UNIX ones; v2: of netlink) and file locks (both). Measured on Linux 6.18 with
 * v1, before this look: 3 GB of the machine's memory in TCP buffers within 30 s, 37 MB of them charged.
 */
export type Hoarded = 'sockets' | 'locks';

export const hoardBounds = {
  /** IPv4, IPv6 and netlink; as many as one process has descriptors. UNIX sockets are charged. */
  sockets: 1024,
  /** What waits in them, as the kernel states it. */
  socketBytes: 128 * 1024 * 1024,
  /** What is taken to wait in one that no table has, if the machine holds as much. The most that one takes is a setting. */
  untoldBytes: 8 * 1024 * 1024,
  /** Of `/proc/locks`, where a lock is a line: some 20,000, at 0.2 KiB of kernel memory each. */
  lockBytes: 1024 * 1024,
  /** Between two looks. One takes 3 ms, nearly all of it the kernel's walk through the locks of the machine. */
  everyMs: 200,
} as const;

/** More than a hundred bytes a row, for each socket that is allowed. What was closed a minute ago has rows as well. */
const tableBytes = 512 * 1024;
/** In which the kernel counts what all sockets of the machine hold. */
const pageBytes = 4096;

/** Tables of one network namespace; the queues are `SEND:RECEIVE` in hexadecimal. */
const tables = ['tcp', 'tcp6', 'udp', 'udp6'];

/** What there is more of than is allowed, in the network and process namespace of this process; null: of nothing. */
export function hoarded(proc = '/proc'): Hoarded | null {
  const net = (name: string): string => beginningOf(`${proc}/self/net/${name}`, tableBytes);
  // Before and after, the more counts: many that begin or end in between are none of another kind.
  const unixBefore = unixIn(net('protocols'));
  const summary = net('sockstat') + net('sockstat6');
  const unix = Math.max(unixBefore, unixIn(net('protocols')));
  const netlink = netlinkUse(net('netlink'));
  let { bytes } = netlink;
  let told = netlink.sockets;
  for (const table of tables) {
    const count = numberIn(summary, `${table.toUpperCase()}: inuse`);
    if (count === 0) continue;
    // Only where there are some: to walk through an empty table takes milliseconds.
    const queued = queuedIn(net(table));
    bytes += queued.bytes;
    told += queued.cut ? queued.filled : count;
  }
  // One that was disconnected, or reset by its peer, is in no table any more and keeps what waits in it.
  const untold = Math.max(0, numberIn(summary, 'sockets: used') - unix - told);
  if (told + untold > hoardBounds.sockets) return 'sockets';
  const ofMachine = pageBytes * (numberIn(summary, 'TCP:.* mem') + numberIn(summary, 'UDP:.* mem'));
  const most = Math.min(bytes + untold * hoardBounds.untoldBytes, ofMachine);
  if (Math.max(bytes, most) > hoardBounds.socketBytes) return 'sockets';
  const locks = beginningOf(`${proc}/locks`, hoardBounds.lockBytes + 1);
  return locks.length > hoardBounds.lockBytes ? 'locks' : null;
}

/** A number of the summary, whose lines are `sockets: used 9` and `TCP: inuse 8 … mem 7`; 0 where it is not there. */
function numberIn(summary: string, before: string): number {
  return Number(new RegExp(`^${before} (\\d+)`, 'm').exec(summary)?.[1] ?? 0);
}

/** UNIX sockets of this network namespace: `UNIX 1152 5 …`, name, size and number. */
function unixIn(protocols: string): number {
  let sum = 0;
  for (const [, count] of protocols.matchAll(/^UNIX(?:-STREAM)? +\d+ +(\d+) /gm)) sum += Number(count);
  return sum;
}

/** What waits in the sockets of a table, in how many of them, and whether there was more of it than was read. */
function queuedIn(table: string): { readonly bytes: number; readonly filled: number; readonly cut: boolean } {
  let bytes = 0;
  let filled = 0;
  for (const [, sent, received] of table.matchAll(/ ([0-9A-F]{8}):([0-9A-F]{8}) [0-9A-F]{2}:/g)) {
    const queued = Number.parseInt(sent ?? '0', 16) + Number.parseInt(received ?? '0', 16);
    bytes += queued;
    if (queued > 0) filled += 1;
  }
  return { bytes, filled, cut: table.length === tableBytes };
}

/** Rows are `address protocol pid groups received sent …`; those of pid 0 are the kernel's own. */
function netlinkUse(table: string): { readonly sockets: number; readonly bytes: number } {
  let sockets = 0;
  let bytes = 0;
  for (const row of table.split('\n').slice(1)) {
    const [, , pid, , received, sent] = row.trim().split(/\s+/);
    if (pid === undefined || sent === undefined || pid === '0') continue;
    sockets += 1;
    bytes += Number(received) + Number(sent);
  }
  return { sockets, bytes };
}

/** At most so many bytes of a file of the kernel's; nothing where it is not there. */
function beginningOf(path: string, bytes: number): string {
  let file: number | undefined;
  try {
    file = openSync(path, 'r');
    const buffer = Buffer.allocUnsafe(bytes);
    let length = 0;
    while (length < bytes) {
      const got = readSync(file, buffer, length, bytes - length, null);
      if (got === 0) break;
      length += got;
    }
    return buffer.toString('latin1', 0, length);
  } catch {
    return '';
  } finally {
    if (file !== undefined) closeSync(file);
  }
}
