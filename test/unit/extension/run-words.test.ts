import { describe, expect, test } from 'vitest';
import { limitValueWords, limitWords } from '../../../src/extension/trees/limit-words.ts';
import { runReasonWords } from '../../../src/extension/trees/run-words.ts';
import { errorCodes } from '../../../src/protocol/errors.ts';
import type { CommandEnd, FrozenCheck, TestSummary } from '../../../src/protocol/contract.ts';
import { bounded } from '../../../src/server/sandbox/profile.ts';
import { judgeBaseline, judgeCheck, judgeVerification } from '../../../src/server/verification/judge.ts';
import { words } from '../../fixtures/window-state.ts';

const said = (reason: string): string => runReasonWords(reason, words);

describe('reasons of a run in the window’s words', () => {
  test.each([
    ['utc: tests-failed', 'utc: tests failed'],
    ['utc: exit-3', 'utc: exit code 3'],
    ['utc: signal-SIGSEGV', 'utc: ended by SIGSEGV'],
    ['utc: spawn-failed-ENOENT', 'utc: did not start (ENOENT)'],
    ['utc: not-run', 'utc: it was not run'],
    ['utc: declared-fail-but-passed', 'utc: passed, though the contract says that it fails'],
    ['utc: declared-pass-but-exit-1', 'utc: exit code 1, though the contract says that it passes'],
    ['files-changed: src/a.py', 'changed while the checks ran: src/a.py'],
    ['files-unread', 'its files could not be read back'],
    ['oom_killed: the channel has ended', 'the memory of its sandbox was not enough'],
    ['engine: connect ENOENT /var/run/docker.sock', 'the container engine failed'],
    ['interrupted', 'the Kernel ended under it'],
    ['EngineUnavailable', 'The container engine did not do what was asked.'],
  ])('%s', (reason, expected) => {
    expect(said(reason)).toBe(expected);
  });

  test('a check may be called as a fault of a run is', () => {
    expect(said('engine: timeout')).toBe('engine: its time was up');
  });

  test('what a newer Kernel says is shown as it is, and hides nothing', () => {
    expect(said('utc: quantum-\u202eflip')).toBe('utc: quantum ⟨U+202E⟩flip');
    expect(said('sun-spots')).toBe('sun spots');
  });

  test('nothing that the judge says is left as a code', () => {
    const ends: CommandEnd[] = [
      ...[0, 1, 126, 127, 137].map((code): CommandEnd => ({ kind: 'exit', code })),
      { kind: 'signal', signal: 'SIGKILL' },
      { kind: 'timeout', afterMs: 1 },
      { kind: 'overflow', limitBytes: 1 },
      { kind: 'oom' },
      { kind: 'no-space', area: '/tmp' },
      { kind: 'pids' },
      { kind: 'hoard', of: 'sockets' },
      { kind: 'cancelled' },
      { kind: 'spawn-failed', errno: 'EACCES' },
      { kind: 'unknown' },
    ] as never;
    const outputs = ['', 'Ran 0 tests in 0.1s\n\nOK\n', 'Ran 2 tests in 0.1s\n\nFAILED (failures=1)\n'];
    const before: TestSummary = { runner: 'unittest', total: 9, passed: 9, failed: 0, skipped: 0, passing: null };
    const reasons = ends.flatMap((end) =>
      outputs.flatMap((output) =>
        (['fail', 'pass'] as const).flatMap((baseline) => {
          const argv = ['python3', '-m', 'unittest'];
          const declared = [{ id: 'utc', kind: 'acceptance', baseline }] as unknown as FrozenCheck[];
          const judged = judgeCheck({ argv, end, output: Buffer.from(output), outputCut: false }, before);
          const checks = [
            {
              id: 'utc',
              kind: 'acceptance',
              argv,
              end,
              durationMs: 1,
              output: null,
              outputCut: false,
              tail: '',
              ...judged,
            },
          ] as never;
          const run = { checks, changed: [], fault: null };
          return [
            ...judgeVerification(declared, run, []).reasons,
            ...judgeBaseline(declared, run).problems,
            ...judgeBaseline(declared, { checks: [], changed: null, fault: null }).problems,
          ];
        }),
      ),
    );
    expect(new Set(reasons).size).toBeGreaterThan(20);
    // What is in no list would be shown as its own words with spaces for dashes.
    expect(reasons.filter((reason) => said(reason) === reason.replaceAll('-', ' ') && reason.includes('-'))).toEqual(
      [],
    );
    for (const code of Object.keys(errorCodes)) expect(said(code)).not.toBe(code);
  });
});

describe('limits of a sandbox in the window’s words', () => {
  test('by what they limit, sizes as sizes; of a newer Kernel as they are', () => {
    expect(limitWords('memory', words.t)).toBe('Memory');
    expect(limitValueWords('memory', String(bounded.memoryBytes), words.t)).toBe('2.0 GiB');
    expect(limitWords('tmpfs /workspace', words.t)).toBe('Files in /workspace');
    expect(limitValueWords('tmpfs /workspace', '67108864 bytes, 8192 inodes, 755 of 0', words.t)).toBe(
      '64.0 MiB, 8192 inodes, 755 of 0',
    );
    expect(limitValueWords('pids', '128', words.t)).toBe('128');
    expect(limitWords('warp', words.t)).toBe('warp');
  });
});
