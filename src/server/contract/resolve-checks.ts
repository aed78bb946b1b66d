import type { JSONPath } from 'jsonc-parser';
import { contractDefaults } from '../../protocol/contract.ts';
import type { ContractSource, FrozenCheck, FrozenContract } from '../../protocol/contract.ts';
import type { RelPath } from '../../protocol/primitives.ts';
import type { Remark, Remarks } from './remarks.ts';
import { shownPath } from './shown-path.ts';

/** Applies the rules about checks, and spells their defaults out. Pure. */
export function resolveChecks(
  source: ContractSource,
  snapshot: readonly RelPath[],
  supplemental: ReadonlySet<RelPath>,
  writable: FrozenContract['writable'],
  { error, warning }: Remarks,
): readonly FrozenCheck[] {
  const ids = new Map<string, JSONPath>();
  const argvs = new Set<string>();
  const checks: FrozenCheck[] = [];
  const known = new Set<string>([...snapshot, ...writable.map((w) => w.path)]);
  const register = (id: string, at: JSONPath): void => {
    if (ids.has(id)) error('duplicate-id', `Another check is already called "${id}".`, at);
    ids.set(id, at);
  };
  source.acceptance.forEach((check, n) => {
    register(check.id, ['acceptance', n, 'id']);
    checkArgv(check.argv, ['acceptance', n, 'argv'], error);
    const key = JSON.stringify(check.argv);
    // The agent calls a check by its argv alone: of two equal ones it could only ever reach the first.
    if (argvs.has(key)) error('duplicate-argv', 'Another check has the same command.', ['acceptance', n, 'argv']);
    argvs.add(key);
    check.argv.forEach((argument, k) => {
      if (supplemental.has(argument as RelPath)) {
        error('supplemental-exposed', `${shownPath(argument)} is supplemental: the agent can't run it.`, [
          'acceptance',
          n,
          'argv',
          k,
        ]);
      } else if (k > 0 && looksLikeFile(argument) && !known.has(argument.replace(/^(?:\.\/)+/, ''))) {
        warning('unknown-path', `${shownPath(argument)} is not in the snapshot.`, ['acceptance', n, 'argv', k]);
      }
    });
    checks.push({
      id: check.id,
      kind: 'acceptance',
      argv: check.argv,
      baseline: check.baseline,
      timeoutS: check.timeoutS,
      showKiB: check.showKiB,
      captureKiB: check.captureKiB,
      env: check.env,
    });
  });
  source.supplemental.forEach((check, n) => {
    const id = check.id ?? `supplemental-${n + 1}`;
    register(id, check.id === undefined ? ['supplemental', n] : ['supplemental', n, 'id']);
    checkArgv(check.argv, ['supplemental', n, 'argv'], error);
    checks.push({
      id,
      kind: 'supplemental',
      argv: check.argv,
      baseline: null,
      timeoutS: check.timeoutS,
      showKiB: contractDefaults.showKiB,
      captureKiB: check.captureKiB,
      env: check.env,
    });
  });
  if (!source.acceptance.some((check) => check.baseline === 'fail')) {
    error('no-failing-check', 'No check is declared to fail before the change, so none can tell broken from fixed.', [
      'acceptance',
    ]);
  }
  return checks;
}

function checkArgv(argv: readonly string[], at: JSONPath, error: Remark): void {
  argv.forEach((argument, n) => {
    if (argument.includes('\0')) error('bad-argument', 'An argument can’t hold a NUL character.', [...at, n]);
  });
  const program = argv[0] ?? '';
  if (program.trim() === '') error('bad-argument', 'The program is empty.', [...at, 0]);
  else if (program.startsWith('-')) error('bad-argument', 'The program can’t start with a dash.', [...at, 0]);
  else if (/\s/.test(program) && argv.length === 1) {
    error('bad-argument', 'Give the program and each argument as its own text: no shell splits them.', [...at, 0]);
  }
}

function looksLikeFile(argument: string): boolean {
  return /^(?:\.\/)?[\w@-][\w.@-]*(?:\/[\w.@-]+)+\.\w{1,5}$/.test(argument);
}
