/**
 * Two programs of a hundred bytes each that the image needs beside Node, so that nothing of a hostile or minimal base
 * (its shell, its `nice`) takes part in starting a command or in probing the cage. x86-64 Linux, no library, no data
 * but what is listed. The tests disassemble nothing: they run them.
 */

const littleEndian32 = (value: number): number[] => [
  value & 0xff,
  (value >> 8) & 0xff,
  (value >> 16) & 0xff,
  (value >> 24) & 0xff,
];
const ascii = (text: string): number[] => [...Buffer.from(text, 'latin1')];

type Part =
  readonly number[] | { readonly label: string } | { readonly jump8: string } | { readonly relative32: string };

/** Puts the parts after each other and fills in the distances to labels. */
function assemble(parts: readonly Part[]): Buffer {
  const sizeOf = (part: Part): number => {
    if ('label' in part) return 0;
    if ('jump8' in part) return 1;
    if ('relative32' in part) return 4;
    return part.length;
  };
  const labels = new Map<string, number>();
  let offset = 0;
  for (const part of parts) {
    if ('label' in part) labels.set(part.label, offset);
    offset += sizeOf(part);
  }
  const bytes: number[] = [];
  for (const part of parts) {
    if ('label' in part) continue;
    if ('jump8' in part) bytes.push((distance(labels, part.jump8, bytes.length + 1) + 256) & 0xff);
    else if ('relative32' in part) {
      bytes.push(...littleEndian32(distance(labels, part.relative32, bytes.length + 4)));
    } else bytes.push(...part);
  }
  return Buffer.from(bytes);
}

function distance(labels: ReadonlyMap<string, number>, label: string, from: number): number {
  const target = labels.get(label);
  if (target === undefined) throw new Error(`no label ${label}`);
  return target - from;
}

/** A static executable with one segment, readable and executable, that starts at its first instruction. */
function executable(code: Buffer): Buffer {
  const base = 0x40_0000n;
  const headers = 64 + 56;
  const file = Buffer.alloc(headers);
  file.set([0x7f, ...ascii('ELF'), 2, 1, 1], 0); // 64 bits, little endian, version 1
  file.writeUInt16LE(2, 16); // ET_EXEC
  file.writeUInt16LE(62, 18); // EM_X86_64
  file.writeUInt32LE(1, 20);
  file.writeBigUInt64LE(base + BigInt(headers), 24); // entry
  file.writeBigUInt64LE(64n, 32); // program headers follow
  file.writeUInt16LE(64, 52);
  file.writeUInt16LE(56, 54);
  file.writeUInt16LE(1, 56);
  file.writeUInt32LE(1, 64); // PT_LOAD
  file.writeUInt32LE(5, 68); // readable, executable
  file.writeBigUInt64LE(base, 80);
  file.writeBigUInt64LE(base, 88);
  file.writeBigUInt64LE(BigInt(headers + code.length), 96);
  file.writeBigUInt64LE(BigInt(headers + code.length), 104);
  file.writeBigUInt64LE(0x1000n, 112);
  return Buffer.concat([file, code]);
}

const syscall = [0x0f, 0x05];
const signedFailure = [[0x85, 0xc0] /* test eax, eax */, [0x78] /* js */, { jump8: 'fail' }] as const;

/**
 * `launch PROGRAM ARGV…`: nice 19, oom_score_adj 1000, then exec. Descriptor 3 is closed by a successful exec; where
 * anything fails, the error number is written to it as one byte.
 */
export function launcherProgram(): Buffer {
  return executable(
    assemble([
      [0x31, 0xff], // xor edi, edi                 PRIO_PROCESS
      [0x31, 0xf6], // xor esi, esi                 this process
      [0xba, ...littleEndian32(19)], // mov edx, 19
      [0xb8, ...littleEndian32(141)], // mov eax, setpriority
      syscall,
      ...signedFailure,
      [0x48, 0x8d, 0x3d],
      { relative32: 'path' }, // lea rdi, [rip + path]
      [0xbe, ...littleEndian32(1)], // mov esi, O_WRONLY
      [0x31, 0xd2], // xor edx, edx
      [0xb8, ...littleEndian32(2)], // mov eax, open
      syscall,
      ...signedFailure,
      [0x89, 0xc7], // mov edi, eax
      [0x48, 0x8d, 0x35],
      { relative32: 'score' }, // lea rsi, [rip + score]
      [0xba, ...littleEndian32(4)], // mov edx, 4
      [0xb8, ...littleEndian32(1)], // mov eax, write
      syscall,
      ...signedFailure,
      [0xb8, ...littleEndian32(3)], // mov eax, close   (edi is still the file)
      syscall,
      [0xbf, ...littleEndian32(3)], // mov edi, 3
      [0xbe, ...littleEndian32(2)], // mov esi, F_SETFD
      [0xba, ...littleEndian32(1)], // mov edx, FD_CLOEXEC
      [0xb8, ...littleEndian32(72)], // mov eax, fcntl
      syscall,
      [0x48, 0x8b, 0x7c, 0x24, 0x10], // mov rdi, [rsp + 16]   argv[1]
      [0x48, 0x8d, 0x74, 0x24, 0x18], // lea rsi, [rsp + 24]   &argv[2]
      [0x48, 0x8b, 0x04, 0x24], // mov rax, [rsp]              argc
      [0x48, 0x8d, 0x54, 0xc4, 0x10], // lea rdx, [rsp + rax * 8 + 16]   envp
      [0xb8, ...littleEndian32(59)], // mov eax, execve
      syscall,
      { label: 'fail' },
      [0xf7, 0xd8], // neg eax
      [0x50], // push rax
      [0xbf, ...littleEndian32(3)], // mov edi, 3
      [0x48, 0x89, 0xe6], // mov rsi, rsp
      [0xba, ...littleEndian32(1)], // mov edx, 1
      [0xb8, ...littleEndian32(1)], // mov eax, write
      syscall,
      [0xbf, ...littleEndian32(127)], // mov edi, 127
      [0xb8, ...littleEndian32(60)], // mov eax, exit
      syscall,
      { label: 'path' },
      ascii('/proc/self/oom_score_adj\0'),
      { label: 'score' },
      ascii('1000'),
    ]),
  );
}

/**
 * Reads records of seven 64-bit numbers (a system call and its six arguments) from descriptor 0, makes the call, and
 * writes its return value (64 bits) to descriptor 1, until the input ends.
 */
export function syscallProbeProgram(): Buffer {
  return executable(
    assemble([
      [0x48, 0x81, 0xec, ...littleEndian32(128)], // sub rsp, 128
      { label: 'next' },
      [0x31, 0xc0], // xor eax, eax                 read
      [0x31, 0xff], // xor edi, edi
      [0x48, 0x89, 0xe6], // mov rsi, rsp
      [0xba, ...littleEndian32(56)], // mov edx, 56
      syscall,
      [0x48, 0x83, 0xf8, 56], // cmp rax, 56
      [0x75],
      { jump8: 'end' }, // jne end
      [0x48, 0x8b, 0x04, 0x24], // mov rax, [rsp]
      [0x48, 0x8b, 0x7c, 0x24, 8], // mov rdi, [rsp + 8]
      [0x48, 0x8b, 0x74, 0x24, 16], // mov rsi, [rsp + 16]
      [0x48, 0x8b, 0x54, 0x24, 24], // mov rdx, [rsp + 24]
      [0x4c, 0x8b, 0x54, 0x24, 32], // mov r10, [rsp + 32]
      [0x4c, 0x8b, 0x44, 0x24, 40], // mov r8, [rsp + 40]
      [0x4c, 0x8b, 0x4c, 0x24, 48], // mov r9, [rsp + 48]
      syscall,
      [0x48, 0x89, 0x04, 0x24], // mov [rsp], rax
      [0xb8, ...littleEndian32(1)], // mov eax, write
      [0xbf, ...littleEndian32(1)], // mov edi, 1
      [0x48, 0x89, 0xe6], // mov rsi, rsp
      [0xba, ...littleEndian32(8)], // mov edx, 8
      syscall,
      [0xeb],
      { jump8: 'next' }, // jmp next
      { label: 'end' },
      [0xb8, ...littleEndian32(60)], // mov eax, exit
      [0x31, 0xff], // xor edi, edi
      syscall,
    ]),
  );
}

/** For other architectures, where the base's own shell and `nice` have to do; there a failed exec is an exit code 127. */
export const launcherScript = `#!/bin/sh
program=$1
shift
echo 1000 >/proc/self/oom_score_adj || exit 127
exec nice -n 19 "$@"
`;
