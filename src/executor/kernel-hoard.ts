import { closeSync, openSync, readSync } from 'node:fs';

/**
 * What a command can have the kernel keep that no control group is charged for, so that no limit of the container ends
 * it: buffers of sockets (v1: of all but UNIX ones; v2: of netlink) and file locks (both). Measured on Linux 6.18 with
 * v1, before this look: 3 GB of the machine's memory in TCP buffers within 30 s, 37 MB of them charged.
 */
export type Hoarded = 'sockets' | 'locks';

export const hoardBounds = {
  /** IPv4, IPv6 and netlink. UNIX sockets are charged. */
  sockets: 512,
  /** What waits in them, as the kernel states it. */
  socketBytes: 128 * 1024 * 1024,
  /** Of `/proc/locks`, where a lock is a line: some 20,000, at 0.2 KiB of kernel memory each. */
  lockBytes: 1024 * 1024,
  /** Between two looks. One takes 3 ms, nearly all of it the kernel's walk through the locks of the machine. */
  everyMs: 200,
} as const;

/** Only a table of a hundred bytes a socket that has more of them than are allowed is longer. */
const tableBytes = 512 * 1024;

/** Tables of one network namespace; the queues are `SEND:RECEIVE` in hexadecimal. */
const tables = ['tcp', 'tcp6', 'udp', 'udp6'];

/** What there is more of than is allowed, in the network and process namespace of this process; null: of nothing. */
export function hoarded(proc = '/proc'): Hoarded | null {
  const net = (name: string): string => beginningOf(`${proc}/self/net/${name}`, tableBytes);
  const summary = net('sockstat') + net('sockstat6');
  let { sockets, bytes } = netlinkUse(net('netlink'));
  const inUse = tables.map((table) => ({ table, count: countIn(summary, table) }));
  for (const { count } of inUse) sockets += count;
  if (sockets > hoardBounds.sockets) return 'sockets';
  // Only where there are some: to walk through an empty table takes milliseconds.
  for (const { table, count } of inUse) if (count > 0) bytes += queuedIn(net(table));
  if (bytes > hoardBounds.socketBytes) return 'sockets';
  const locks = beginningOf(`${proc}/locks`, hoardBounds.lockBytes + 1);
  return locks.length > hoardBounds.lockBytes ? 'locks' : null;
}

/** Sockets of a kind in this network namespace, from `TCP: inuse 8 …`. */
function countIn(summary: string, table: string): number {
  return Number(new RegExp(`^${table.toUpperCase()}: inuse (\\d+)`, 'm').exec(summary)?.[1] ?? 0);
}

function queuedIn(table: string): number {
  let sum = 0;
  for (const [, sent, received] of table.matchAll(/ ([0-9A-F]{8}):([0-9A-F]{8}) [0-9A-F]{2}:/g)) {
    sum += Number.parseInt(sent ?? '0', 16) + Number.parseInt(received ?? '0', 16);
  }
  return sum;
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
