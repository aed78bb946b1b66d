import * as z from 'zod';
import { digestOf } from '../../protocol/hash.ts';
import type { Sha256 } from '../../protocol/primitives.ts';
import source from './seccomp.json' with { type: 'json' };

/**
 * The system calls that processes in a sandbox may make: the container engine's default profile (moby's, data under the
 * Apache License 2.0) for our four capabilities, without io_uring, ptrace, SysV IPC, POSIX queues, keyrings, memfd_secret
 * and 32-bit calls, and with no socket family but UNIX, IPv4 and IPv6 (TCP and UDP) and the routing part of netlink.
 */
const Profile = z.looseObject({
  defaultAction: z.literal('SCMP_ACT_ERRNO'),
  archMap: z.array(z.looseObject({ architecture: z.string(), subArchitectures: z.array(z.string()).length(0) })),
  syscalls: z.array(z.looseObject({ names: z.array(z.string()).min(1), action: z.string() })).min(1),
});

const profile = Profile.parse(source);

/** As Docker takes it: inline JSON after `seccomp=`. */
export const seccompOption = `seccomp=${JSON.stringify(profile)}`;

/** EOPNOTSUPP, as file systems say that they can't reserve room: programs then write instead. */
const cannotReserve = 95;

/**
 * For steps that make images, whose disk is bounded by looking: the same, but a step has to write what it takes. To
 * reserve all that is free takes one call, and no limit of file sizes holds for it.
 */
export const stepSeccompOption = `seccomp=${JSON.stringify({
  ...profile,
  syscalls: [
    ...profile.syscalls.map((rule) => ({ ...rule, names: rule.names.filter((name) => name !== 'fallocate') })),
    { names: ['fallocate'], action: 'SCMP_ACT_ERRNO', errnoRet: cannotReserve },
  ].filter(({ names }) => names.length > 0),
})}`;

export const seccompDigest: Sha256 = digestOf(profile);
