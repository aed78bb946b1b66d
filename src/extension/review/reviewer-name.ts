import { execFile } from 'node:child_process';
import { userInfo } from 'node:os';
import { promisify } from 'node:util';

/**
 * The name that a decision records, as asserted: the setting, else git's `user.name` for the folder, else the account's.
 * Bounded wait; never throws.
 */
export async function reviewerName(setting: string, folder: string | undefined): Promise<string> {
  if (setting.trim() !== '') return setting.trim().slice(0, 120);
  try {
    // `-C` rather than a working directory: Windows would look for a git in that folder first.
    const where = folder === undefined ? [] : ['-C', folder];
    const { stdout } = await promisify(execFile)('git', [...where, 'config', 'user.name'], {
      timeout: 2000,
      windowsHide: true,
    });
    const name = stdout.trim();
    if (name !== '') return name.slice(0, 120);
  } catch {
    // No git, no such folder, no name set: the account's name has to do.
  }
  return userInfo().username.slice(0, 120) || 'unknown';
}
