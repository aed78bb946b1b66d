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

  /** `used`: all sockets of the namespace; `mebibytes`: what those of the machine hold. */
  const whole = (used: number, tcp: number, mebibytes: number, unix: number): void => {
    const pages = (mebibytes * 256) / 2;
    put(
      'self/net/sockstat',
      `sockets: used ${used}\nTCP: inuse ${tcp} orphan 0 tw 0 alloc 7 mem ${pages}\nUDP: inuse 0 mem ${pages}\n`,
    );
    put(
      'self/net/protocols',
      `protocol  size sockets  memory press maxhdr\nUNIX-STREAM 1152  ${unix}  -1   NI 0   yes  kernel\nUNIX      1152      1      -1   NI       0   yes  kernel\nTCP       2304   ${tcp}   49   no 192   yes  kernel\n`,
    );
  };
  const allowed = hoardBounds.socketBytes / hoardBounds.untoldBytes;

  it('is told of sockets that no table has any more, by what those of the machine hold', () => {
    put('self/net/tcp', table([[0, 0]]));
    whole(allowed + 7, 1, 1024, 5);
    expect(hoarded(proc)).toBeNull();
    whole(allowed + 8, 1, 1024, 5);
    expect(hoarded(proc)).toBe('sockets');
    // Much on the machine is not theirs where they are few, and many can't hold more than all of it.
    whole(8, 1, 1024, 5);
    expect(hoarded(proc)).toBeNull();
    whole(400, 1, 128, 5);
    expect(hoarded(proc)).toBeNull();
    whole(hoardBounds.sockets + 7, 1, 0, 5);
    expect(hoarded(proc)).toBe('sockets');
  });

  it('is told of sockets that what was closed a minute ago has pushed out of what is read of their table', () => {
    const closed = Array.from({ length: 5_000 }, () => [0, 0] as const);
    put('self/net/tcp', table([...closed, [hoardBounds.socketBytes, 1]]));
    whole(100, 94, 1024, 5);
    expect(hoarded(proc)).toBe('sockets');
    whole(100, 94, 100, 5);
    expect(hoarded(proc)).toBeNull();
  });

  it('is told of locks by the length of their list', () => {
    put('locks', 'x'.repeat(hoardBounds.lockBytes));
    expect(hoarded(proc)).toBeNull();
    put('locks', 'x'.repeat(hoardBounds.lockBytes + 1));
    expect(hoarded(proc)).toBe('locks');
  });
});
