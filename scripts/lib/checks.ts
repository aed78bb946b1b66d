import { runShown } from './run.ts';
import { root } from './root.ts';

/** Every static check, in the order of how fast it answers. Layering is part of the lint rules (.oxlintrc.json). */
const checks = [
  { name: 'types', argv: ['tsc', '-p', '.'] },
  { name: 'lint and layering', argv: ['oxlint', '--type-aware', '--deny-warnings'] },
  { name: 'format', argv: ['prettier', '--check', '--cache', '--log-level', 'warn', '.'] },
  { name: 'dead code', argv: ['knip', '--no-progress'] },
] as const;

/** Runs all static checks, also after one has failed. Returns how many passed and failed, and which failed. */
export async function runChecks(): Promise<{
  readonly passed: number;
  readonly failed: number;
  readonly failures: readonly string[];
}> {
  let passed = 0;
  const failures: string[] = [];
  for (const { name, argv } of checks) {
    const started = performance.now();
    const [program, ...args] = argv;
    const code = await runShown(program, args, { cwd: root });
    const seconds = ((performance.now() - started) / 1000).toFixed(1);
    process.stderr.write(`check: ${code === 0 ? 'ok  ' : 'FAIL'} ${name} (${argv.join(' ')}, ${seconds} s)\n`);
    if (code === 0) passed += 1;
    else failures.push(`static check: ${name} (npm run check)`);
  }
  return { passed, failed: failures.length, failures };
}
