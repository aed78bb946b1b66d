import { runGathered } from './run.ts';
import { root } from './root.ts';

/** Every static check. Layering is part of the lint rules (.oxlintrc.json). */
const checks = [
  { name: 'types', argv: ['tsc', '-p', '.'] },
  { name: 'lint and layering', argv: ['oxlint', '--type-aware', '--deny-warnings'] },
  { name: 'format', argv: ['prettier', '--check', '--cache', '--log-level', 'warn', '.'] },
  { name: 'dead code', argv: ['knip', '--no-progress'] },
] as const;

/**
 * Runs all static checks side by side, and says of each at its end what it found. Returns how many passed and failed,
 * and which failed.
 */
export async function runChecks(): Promise<{
  readonly passed: number;
  readonly failed: number;
  readonly failures: readonly string[];
}> {
  const ran = await Promise.all(
    checks.map(async ({ name, argv }) => {
      const started = performance.now();
      const [program, ...args] = argv;
      const { code, output } = await runGathered(program, args, { cwd: root });
      const seconds = ((performance.now() - started) / 1000).toFixed(1);
      const ok = code === 0;
      const line = `check: ${ok ? 'ok  ' : 'FAIL'} ${name} (${argv.join(' ')}, ${seconds} s)\n`;
      process.stderr.write(ok ? line : `${output.trimEnd()}\n${line}`);
      return { name, ok };
    }),
  );
  const failures = ran.filter(({ ok }) => !ok).map(({ name }) => `static check: ${name} (npm run check)`);
  return { passed: ran.length - failures.length, failed: failures.length, failures };
}
