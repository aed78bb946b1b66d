import type { TestSummary } from '../../protocol/contract.ts';

export type TestRunner = TestSummary['runner'];

/**
 * Which known test runner a command starts, by its words alone; null when none is recognised or when the runner was
 * told not to print its tests (plain `go test` prints nothing that could be counted): then only the exit status is
 * known, and the review says so.
 */
export function testRunnerOf(argv: readonly string[]): TestRunner | null {
  const [program, ...rest] = argv;
  if (program === undefined) return null;
  const name = programName(program);
  if (/^python(?:3(?:\.\d+)?)?$/.test(name)) return pythonRunner(rest);
  if (name === 'pytest' || name === 'py.test') return 'pytest';
  if (name === 'node' || name === 'nodejs') return nodeRunner(rest);
  if (name === 'vitest' || name === 'jest') return name;
  if (name === 'npx' || name === 'bunx' || name === 'pnpx') return packageRunner(rest);
  if ((name === 'npm' || name === 'pnpm' || name === 'yarn') && (rest[0] === 'exec' || rest[0] === 'dlx')) {
    return packageRunner(rest.slice(1));
  }
  if (name === 'go' && rest[0] === 'test')
    return rest.some((a) => /^--?(?:v|json|test\.v)(?:=true)?$/.test(a)) ? 'go' : null;
  if (name === 'cargo') return rest.find((a) => !a.startsWith('+') && !a.startsWith('-')) === 'test' ? 'cargo' : null;
  return null;
}

function programName(program: string): string {
  return (program.split('/').at(-1) ?? '').replace(/\.(?:exe|cmd|mjs|cjs|js)$/i, '');
}

/** Options of python that take the next word as their value. */
const pythonValueOptions = new Set(['-W', '-X', '--check-hash-based-pycs']);

function pythonRunner(args: readonly string[]): TestRunner | null {
  for (let n = 0; n < args.length; n += 1) {
    const argument = args[n] ?? '';
    const module = argument === '-m' ? args[n + 1] : /^-[A-Za-z]*m$/.test(argument) ? args[n + 1] : undefined;
    if (module !== undefined) return module === 'unittest' || module === 'pytest' ? module : null;
    if (!argument.startsWith('-')) {
      const script = programName(argument);
      return script === 'pytest' || script === 'py.test' ? 'pytest' : null;
    }
    if (argument === '-c') return null;
    if (pythonValueOptions.has(argument)) n += 1;
  }
  return null;
}

/** Options of node that take the next word as their value. */
const nodeValueOptions = new Set([
  '-r',
  '--require',
  '--import',
  '--loader',
  '--experimental-loader',
  '-C',
  '--conditions',
]);

function nodeRunner(args: readonly string[]): TestRunner | null {
  for (let n = 0; n < args.length; n += 1) {
    const argument = args[n] ?? '';
    if (argument === '--test') return 'node';
    if (!argument.startsWith('-')) {
      const script = programName(argument);
      return script === 'vitest' || script === 'jest' ? script : null;
    }
    if (nodeValueOptions.has(argument)) n += 1;
  }
  return null;
}

function packageRunner(args: readonly string[]): TestRunner | null {
  const tool = args.find((argument) => !argument.startsWith('-'));
  const name = programName(tool ?? '').replace(/@[^@/]*$/, '');
  return name === 'vitest' || name === 'jest' ? name : null;
}
