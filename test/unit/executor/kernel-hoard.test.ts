import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { hoardBounds, hoarded } from '../../../src/executor/kernel-hoard.ts';

let proc: string;
beforeEach(() => {
  proc = mkdtempSync(path.join(tmpdir(), 'escrow-proc-'));
  mkdirSync(path.join(proc, 'self/net'), { recursive: true });
});
afterEach(() => rmSync(proc, { recursive: true }));

const put = (name: string, text: string): void => writeFileSync(path.join(proc, name), text);
const hex = (value: number): string => value.toString(16).toUpperCase().padStart(8, '0');
const summary = (tcp: number, udp: number): void =>
  put(
    'self/net/sockstat',
    `sockets: used 9\nTCP: inuse ${tcp} orphan 0 tw 0 alloc 7 mem 441\nUDP: inuse ${udp} mem 0\n`,
  );
/** Rows as Linux prints them, with what waits to be sent and to be read. */
const table = (rows: readonly (readonly [number, number])[]): string =>
  [
    '  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode',
    ...rows.map(
      ([sent, received], index) =>
        `   ${index}: 0100007F:8787 0100007F:0000 01 ${hex(sent)}:${hex(received)} 00:00000000 00000000 10001        0 1 1 0000000045668a53 100 0 0 10 0`,
    ),
    '',
  ].join('\n');
const netlink = (rows: readonly (readonly [pid: number, received: number])[]): string =>
  [
    'sk               Eth Pid        Groups   Rmem     Wmem     Dump  Locks    Drops    Inode',
    ...rows.map(
      ([pid, received]) =>
        `00000000f19ae531 0   ${pid}          00000000 ${received}        0        0     2        0        4`,
    ),
    '',
  ].join('\n');

describe('what the kernel keeps uncharged', () => {
  it('is too much in no sandbox that does nothing, nor where nothing can be read', () => {
    expect(hoarded(proc)).toBeNull();
    summary(0, 0);
    put('self/net/netlink', netlink([[0, 0]]));
    put('locks', '1: POSIX  ADVISORY  WRITE 7052 fe:00:10797286 1073741824 1073742335\n');
    expect(hoarded(proc)).toBeNull();
  });

  it('is told of what waits in sockets of every table together, and just fits', () => {
    const quarter = hoardBounds.socketBytes / 4;
    summary(2, 1);
    put(
      'self/net/tcp',
      table([
        [quarter, 0],
        [0, quarter],
      ]),
    );
    put('self/net/udp', table([[0, quarter]]));
    put('self/net/netlink', netlink([[7, quarter]]));
    expect(hoarded(proc)).toBeNull();
    put('self/net/netlink', netlink([[7, quarter + 1]]));
    expect(hoarded(proc)).toBe('sockets');
  });

  it('is told of IPv6 as well', () => {
    put('self/net/sockstat6', 'TCP6: inuse 1\nUDP6: inuse 0\n');
    const row = `   0: ${'0'.repeat(32)}:07E8 ${'0'.repeat(32)}:0000 01 00000000:${hex(hoardBounds.socketBytes + 1)} 00:00000000 00000000     0        0 1596`;
    put('self/net/tcp6', `  sl  local_address\n${row}\n`);
    expect(hoarded(proc)).toBe('sockets');
  });

  it('is told of the number of sockets, the kernel’s own netlink ones apart', () => {
    put('self/net/netlink', netlink(Array.from({ length: 600 }, () => [0, 0])));
    expect(hoarded(proc)).toBeNull();
    summary(hoardBounds.sockets - 1, 1);
    put('self/net/tcp', table([]));
    put('self/net/udp', table([]));
    expect(hoarded(proc)).toBeNull();
    put('self/net/netlink', netlink([[7, 0]]));
    expect(hoarded(proc)).toBe('sockets');
  });

  it('is told of locks by the length of their list', () => {
    put('locks', 'x'.repeat(hoardBounds.lockBytes));
    expect(hoarded(proc)).toBeNull();
    put('locks', 'x'.repeat(hoardBounds.lockBytes + 1));
    expect(hoarded(proc)).toBe('locks');
  });
});
