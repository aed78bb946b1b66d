import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { promisify } from 'node:util';

/**
 * When a process started, in a form that only compares equal for the same process: a pid alone is recycled. Undefined
 * when there is no such process, or the platform does not tell (Windows).
 */
export async function processStart(pid: number): Promise<string | undefined> {
  if (process.platform === 'linux') {
    try {
      const [text, boot] = await Promise.all([
        readFile(`/proc/${pid}/stat`, 'utf8'),
        readFile('/proc/sys/kernel/random/boot_id', 'utf8').catch(() => ''),
      ]);
      // The name in brackets may hold spaces and brackets: fields count from the last bracket. Field 22 is the start
      // in clock ticks since boot (proc_pid_stat(5)), field 3 the state.
      const fields = text.slice(text.lastIndexOf(')') + 2).split(' ');
      if (fields[0] === 'Z' || fields[0] === 'X') return undefined;
      return `${boot.trim()}:${fields[19] ?? ''}`;
    } catch {
      return undefined;
    }
  }
  if (process.platform === 'win32') return undefined;
  try {
    const { stdout } = await promisify(execFile)('/bin/ps', ['-o', 'lstart=', '-p', String(pid)], {
      env: { LC_ALL: 'C', TZ: 'UTC' },
      timeout: 5000,
    });
    return stdout.trim() === '' ? undefined : stdout.trim();
  } catch {
    return undefined;
  }
}

/**
 * Whether the process that was seen with this pid and start still lives. `unknown` where the platform cannot tell a
 * recycled pid from the old process.
 */
export async function processState(pid: number, start: string | null): Promise<'alive' | 'dead' | 'unknown'> {
  try {
    process.kill(pid, 0);
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ESRCH') return 'dead';
  }
  const now = await processStart(pid);
  if (start === null) return process.platform === 'win32' ? 'unknown' : now === undefined ? 'dead' : 'unknown';
  if (now === undefined) return process.platform === 'win32' ? 'unknown' : 'dead';
  return now === start ? 'alive' : 'dead';
}
