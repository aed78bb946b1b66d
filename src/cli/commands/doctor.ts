import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { EscrowError } from '../../protocol/errors.ts';
import type { Command } from '../command.ts';
import { exitCodeOfThrown, exitCodes } from '../exit-code.ts';
import type { Lines } from '../format.ts';
import { styled } from '../output.ts';
import { findingLines, partsLines, statusLines } from './kernel.ts';

const run = promisify(execFile);

async function gitVersion(): Promise<string | null> {
  try {
    return (await run('git', ['--version'], { timeout: 10_000 })).stdout.trim().replace(/^git version /, '');
  } catch {
    return null;
  }
}

export const doctor: Command = {
  path: ['doctor'],
  summary: 'Say what is there, what is missing, and what to do about it.',
  args: '',
  options: {},
  details: [
    'Starts the Kernel if none runs. A missing inference engine is reported but is no failure: rehearsals work without one.',
  ],
  exits: { 1: 'git is missing', 5: 'the container engine, the image or the storage is not usable' },
  async run({ kernel, out }) {
    const git = await gitVersion();
    const own: Lines = [
      ['node'.padEnd(12), styled('green', 'ok'), ` · ${process.versions.node}`],
      [
        'git'.padEnd(12),
        git === null ? styled('red', 'unavailable') : styled('green', 'ok'),
        git === null ? '' : ` · ${git}`,
      ],
      ...(git === null
        ? [[styled('dim', '            → '), 'Install git: contracts take their files from what git tracks.']]
        : []),
    ];
    for (const line of own) out.line(...line);
    const local = { node: process.versions.node, git };
    try {
      const status = await (await kernel.connect()).call('kernel/probe', {});
      for (const line of partsLines(status)) out.line(...line);
      for (const line of findingLines(status)) out.line(...line);
      out.line();
      for (const line of statusLines(status)) out.line(...line);
      const usable = [status.engine, status.image, status.storage].every(
        (part) => part.state === 'ok' || part.state === 'degraded',
      );
      out.value({ ok: usable && git !== null, ...local, kernel: status });
      if (!usable) return exitCodes.environment;
      return git === null ? exitCodes.failed : exitCodes.ok;
    } catch (error) {
      if (!EscrowError.is(error)) throw error;
      out.line('kernel      ', styled('red', 'unavailable'), ` · ${error.message}`);
      out.line(styled('dim', '            → '), error.next);
      out.value({ ok: false, ...local, kernel: null, error: { message: error.message, ...error.toData() } });
      return exitCodeOfThrown(error, kernel.connected);
    }
  },
};
