/**
 * Calls that the seccomp profile must refuse (or allow), with arguments under which the kernel itself gives another
 * error: whether the filter is in force can be told from the return value, and nothing happens where it isn't.
 * Numbers are those of x86-64 (linux/arch/x86/entry/syscalls/syscall_64.tbl).
 */
const calls: Readonly<Record<string, readonly [number: number, ...args: number[]]>> = {
  ptrace: [101, 0x4206, 0x3ff_ffff, 0, 0], // PTRACE_SEIZE of a pid beyond the highest: ESRCH
  process_vm_readv: [310, 0x3ff_ffff, 0, 0, 0, 0, 0], // ESRCH or 0
  io_uring_setup: [425, 0, 0], // EINVAL or EFAULT
  memfd_secret: [447, 0xffff_ffff], // EINVAL
  shmget: [29, 0, 0, 0], // EINVAL: size 0
  semget: [64, 0, 0, 0], // EINVAL: no semaphores
  msgget: [68, 0x7e57_7e57, 0], // ENOENT: no such queue
  mq_open: [240, 0, 0, 0, 0], // EFAULT
  keyctl: [250, 0xffff], // EOPNOTSUPP
  add_key: [248, 0, 0, 0, 0, 0], // EFAULT
  userfaultfd: [323, 0xffff_ffff], // EINVAL
  mount: [165, 0, 0, 0, 0, 0], // EFAULT or EPERM
  unshare_user: [272, 0x1000_0000], // would succeed
  // IPv4 speaks TCP and UDP only: what waits in the others is told nowhere (kernel-hoard.ts).
  mptcp: [41, 2, 1, 262], // would succeed, or EPROTONOSUPPORT
  sctp: [41, 2, 1, 132],
  icmp: [41, 2, 2, 1], // EACCES
  udplite: [41, 2, 2, 136],
  // Types that mean one of them where it is loaded, whatever protocol is asked for: ESOCKTNOSUPPORT, or would succeed.
  seqpacket: [41, 2, 5, 0],
  dccp: [41, 2, 6, 0],
  clone3: [435, 0, 0], // must be ENOSYS, so that callers fall back to clone
  /** The positive control: allowed, so a filter that refuses everything is seen too. */
  getpid: [39],
};

/** AF_* values are tried one by one; the highest that Linux knows is 45 (AF_MCTP). */
const families = 46;
const socket = 41;
const sockRaw = 3;
const sockStream = 1;
const sockDatagram = 2;
const recordBytes = 56;

interface Probe {
  readonly name: string;
  readonly record: readonly number[];
}

function probes(): Probe[] {
  const list: Probe[] = Object.entries(calls).map(([name, record]) => ({ name, record }));
  for (let family = 0; family < families; family += 1) {
    for (const [label, type] of [
      ['stream', sockStream],
      ['dgram', sockDatagram],
      ['raw', sockRaw],
    ] as const) {
      list.push({ name: `socket:${family}:${label}`, record: [socket, family, type, 0] });
    }
  }
  // NETLINK_SOCK_DIAG and NETLINK_AUDIT: only NETLINK_ROUTE (0) may be opened.
  list.push({ name: 'netlink:4', record: [socket, 16, sockRaw, 4] });
  list.push({ name: 'netlink:9', record: [socket, 16, sockRaw, 9] });
  return list;
}

/** What is written to the probe program: one record of seven little-endian 64-bit numbers a call. */
export function probeInput(): Buffer {
  const list = probes();
  const input = Buffer.alloc(list.length * recordBytes);
  for (const [index, { record }] of list.entries()) {
    for (const [position, value] of record.entries()) {
      input.writeBigUInt64LE(BigInt(value), index * recordBytes + position * 8);
    }
  }
  return input;
}

/** Return values by name; null when the program did not answer every call. */
export function probeOutput(output: Buffer): Record<string, number> | null {
  const list = probes();
  if (output.length !== list.length * 8) return null;
  return Object.fromEntries(list.map(({ name }, index) => [name, Number(output.readBigInt64LE(index * 8))]));
}
