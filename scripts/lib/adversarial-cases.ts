/**
 * The adversarial list as far as it concerns the sandbox. A test names the cases that it shows in its title: `[26]` for
 * the attack, `[26=]` for its positive control (the same attempt succeeds where the protection is off or the limit is
 * higher), `[26+]` where one test holds both.
 */
export const adversarialCases: Readonly<Record<number, string>> = {
  1: 'fork bomb, collection still completes',
  2: 'respawning bomb against cancel',
  3: 'ten thousand zombies, pids recover',
  4: 'thread exhaustion',
  5: 'descriptor exhaustion in the worker',
  6: 'memory hog, supervisor survives, OOM named',
  7: 'SysV shared memory fill',
  8: 'each tmpfs full of real bytes',
  9: 'inodes exhausted on each tmpfs',
  10: 'sparse and fallocated files',
  11: 'memfd hoard',
  12: 'message queue creation',
  13: 'CPU spin, sleep past the wall clock',
  14: 'core dump',
  15: 'double fork and setsid daemon',
  16: 'TERM, HUP, INT ignored',
  17: 'timer and SIGCONT against a freeze',
  18: 'worker stops or kills the executor',
  19: 'write to /proc/<executor>/fd',
  20: 'ptrace, process_vm, /proc/mem',
  21: 'inherited descriptors',
  22: 'background child holds stdout',
  23: 'stdin hang, early close',
  24: 'SUID copy',
  25: 'environment leaks',
  26: 'endless output without newline',
  27: 'one-byte writes, thousands of frames at once',
  28: 'forged, oversized, truncated frame',
  29: 'the Kernel stops reading, deadlines fire',
  30: 'invalid UTF-8, NUL, split multibyte',
  31: 'a second client injects',
  32: 'Kernel killed in mid-command',
  33: 'engine restarted in mid-command',
  34: 'half a frame from a dead client',
  35: '.., absolute, %s, empty, 4 KiB paths',
  36: 'NUL, newline, right-to-left, control characters',
  37: 'NFC and case collisions, device names',
  38: 'symlink leaf and parent, swapped in a loop',
  39: 'hard link, rename of a parent',
  40: 'FIFO, socket, device, /proc as a declared file',
  41: 'file changes during a read',
  42: 'mode 000, thousand-deep folders',
  43: 'existing link, wrong owner',
  44: 'archive traversal, link chains',
  51: 'each limit read back, every socket family',
  52: 'the engine lies about a stop, 409, 500, 126',
  53: 'disk full at a write of the host',
  54: 'state folder: symlink, foreign, full, read-only',
  59: 'base image with VOLUME',
  60: 'base image with HEALTHCHECK',
  61: 'base image with hostile ENV',
  62: 'ONBUILD, ENTRYPOINT, USER, STOPSIGNAL',
  63: '/etc/ld.so.preload, replaced files, musl',
  64: 'repository scripts and stray files in preparation',
};

export interface RanTest {
  /** With the titles of what it lies in. */
  readonly fullName: string;
  readonly status: string;
}

export interface CaseTable {
  readonly lines: readonly string[];
  /** Cases without an attack that passed, or without a control that passed. */
  readonly missing: number;
}

/** One line a case: number, what it is, tests of the attack and of its control. What was skipped shows nothing. Pure. */
export function caseTable(tests: readonly RanTest[]): CaseTable {
  const shown = new Map<number, { attacks: number; controls: number; skipped: number; failed: boolean }>();
  for (const { fullName, status } of tests) {
    for (const [, number, kind] of fullName.matchAll(/\[(\d+)([+=]?)\]/g)) {
      const n = Number(number);
      const entry = shown.get(n) ?? { attacks: 0, controls: 0, skipped: 0, failed: false };
      if (status === 'passed') {
        if (kind !== '=') entry.attacks += 1;
        if (kind !== '') entry.controls += 1;
      } else if (status === 'failed') entry.failed = true;
      else entry.skipped += 1;
      shown.set(n, entry);
    }
  }
  let missing = 0;
  const lines = Object.entries(adversarialCases).map(([number, what]) => {
    const { attacks = 0, controls = 0, skipped = 0, failed = false } = shown.get(Number(number)) ?? {};
    const ok = attacks > 0 && controls > 0 && !failed;
    if (!ok) missing += 1;
    const words = ok ? 'held' : failed ? 'FAILED' : attacks === 0 ? 'NO TEST' : 'NO CONTROL';
    const counts = `attacks ${attacks}, controls ${controls}${skipped === 0 ? '' : `, skipped ${skipped}`}`;
    return `${number.padStart(3)}  ${what.padEnd(52)} ${words.padEnd(10)} ${counts}`;
  });
  return { lines, missing };
}
