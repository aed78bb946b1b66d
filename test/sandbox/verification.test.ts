import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { CheckResult, FrozenContract } from '../../src/protocol/contract.ts';
import { sha256 } from '../../src/protocol/hash.ts';
import type { ArtefactRef, RelPath } from '../../src/protocol/primitives.ts';
import { freezeContract } from '../../src/server/contract/freeze-contract.ts';
import type { Frozen } from '../../src/server/contract/freeze-contract.ts';
import { judgeBaseline, judgeVerification } from '../../src/server/verification/judge.ts';
import { runChecks } from '../../src/server/verification/run-checks.ts';
import type { CheckHooks, CheckRun } from '../../src/server/verification/run-checks.ts';
import { verificationFiles } from '../../src/server/verification/verification-files.ts';
import { exampleRepo } from '../fixtures/example-repo.ts';
import { sandboxBench, textOf, placedFiles, type TestFile } from '../fixtures/sandbox.ts';
import type { SandboxBench } from '../fixtures/sandbox.ts';
import { scope } from '../fixtures/scope.ts';

/** Artefacts in memory: what is durable where is the store's own test. */
function artefacts() {
  const kept = new Map<string, Uint8Array>();
  return {
    kept,
    put(bytes: Uint8Array): Promise<ArtefactRef> {
      const ref = { sha256: sha256(bytes), size: bytes.byteLength };
      kept.set(ref.sha256, bytes);
      return Promise.resolve(ref);
    },
  };
}

const filesOf = (
  bytes: ReadonlyMap<RelPath, Uint8Array>,
  entries: readonly { path: RelPath; mode: number }[],
): TestFile[] => entries.map(({ path, mode }) => ({ path, mode, bytes: bytes.get(path)! }));

describe('checks in a real sandbox', () => {
  let bench: SandboxBench;
  let utc: Frozen;
  let cart: Frozen;
  beforeAll(async () => {
    bench = await sandboxBench();
    const [one, two] = [await exampleRepo('utc-timestamp'), await exampleRepo('cart-cents')];
    utc = await freezeContract(one.contract, scope);
    cart = await freezeContract(two.contract, scope);
    await one.dispose();
    await two.dispose();
  });
  afterAll(() => bench.dispose());

  interface Options {
    readonly baseline?: readonly CheckResult[] | null;
    readonly hooks?: Partial<CheckHooks>;
    readonly signal?: AbortSignal;
    readonly kept?: Map<string, Uint8Array>;
  }
  async function run(
    files: readonly TestFile[],
    checks: FrozenContract['checks'],
    purpose: 'baseline' | 'verification',
    options: Options = {},
  ): Promise<CheckRun> {
    const owner = `run_${randomBytes(8).toString('hex')}`;
    const store = artefacts();
    const seen: string[] = [];
    const result = await runChecks({
      service: bench.service,
      artefacts: store,
      artefactOwner: 'test',
      name: `escrow-${purpose}-${owner}`,
      purpose,
      owner,
      session: null,
      epoch: 1,
      image: bench.image,
      profile: 'bounded',
      ...placedFiles(files),
      scratch: [],
      checks,
      baseline: options.baseline ?? null,
      hooks: {
        onProvision: (fact) => void seen.push(fact.kind),
        onStop: (stop) => void seen.push(stop.kind),
        onAbsent: (absence) => void seen.push(absence.kind),
        ...options.hooks,
      },
      signal: options.signal ?? new AbortController().signal,
    });
    for (const [hash, bytes] of store.kept) options.kept?.set(hash, bytes);
    // Whatever happened: the container was seen stopped and absent.
    expect(result.stop?.kind).toMatch(/stopped|absent/);
    expect(result.absence).toEqual({ kind: 'absent' });
    expect((await bench.service.list()).filter((c) => c.owner === owner)).toEqual([]);
    return result;
  }
  const baseline = (frozen: Frozen): Promise<CheckRun> =>
    run(
      filesOf(frozen.bytes, frozen.contract.files),
      frozen.contract.checks.filter((c) => c.kind === 'acceptance'),
      'baseline',
    );
  async function verify(
    frozen: Frozen,
    changed: Readonly<Record<string, string>>,
    options: Options = {},
  ): Promise<CheckRun> {
    const { contract } = frozen;
    const candidate = contract.writable.map(({ path }) => ({
      path,
      mode: 0o644,
      bytes: changed[path] === undefined ? frozen.bytes.get(path)! : Buffer.from(changed[path]),
    }));
    const files = verificationFiles({
      contract,
      snapshot: filesOf(frozen.bytes, contract.files),
      candidate,
      supplemental: filesOf(frozen.supplementalBytes, contract.supplementalFiles),
    });
    return run(files, contract.checks, 'verification', options);
  }
  const original = (frozen: Frozen, path: string): string => textOf(frozen.bytes.get(path as RelPath)!);
  const replaced = (frozen: Frozen, path: string, from: string, to: string): Record<string, string> => {
    const text = original(frozen, path);
    expect(text).toContain(from);
    return { [path]: text.replace(from, to) };
  };
  const fix = (): Record<string, string> =>
    replaced(
      utc,
      'src/usage.py',
      '    return datetime.fromisoformat(text).timestamp()\n',
      '    moment = datetime.fromisoformat(text)\n    if moment.tzinfo is None:\n        moment = moment.replace(tzinfo=timezone.utc)\n    return moment.timestamp()\n',
    );
  const verdicts = (checks: readonly CheckResult[]): Record<string, string> =>
    Object.fromEntries(checks.map((check) => [check.id, check.reason ?? check.verdict]));

  it('show that the baseline of both examples discriminates', async () => {
    for (const frozen of [utc, cart]) {
      const facts = await baseline(frozen);
      expect(judgeBaseline(frozen.contract.checks, facts)).toEqual({ result: 'discriminates', problems: [] });
      expect(facts.changed).toEqual([]);
      expect(facts.quiesce).toMatchObject({ empty: true });
    }
    const seen = (await baseline(utc)).checks;
    expect(seen.map((c) => [c.id, c.summary?.total, c.summary?.passed])).toEqual([
      ['utc', 4, 2],
      ['rest', 7, 7],
    ]);
    expect(seen[0]?.tail).toContain('1767218400.0 != 1767225600');
  });

  it('pass the right change, every check with its summary and its whole output kept', async () => {
    const kept = new Map<string, Uint8Array>();
    const facts = await verify(utc, fix(), { baseline: (await baseline(utc)).checks, kept });
    expect(judgeVerification(utc.contract.checks, facts, [])).toEqual({ result: 'passed', reasons: [] });
    expect(facts.checks.map((c) => c.strength)).toEqual(Array.from({ length: 5 }, () => 'summary'));
    for (const check of facts.checks) expect(textOf(kept.get(check.output!.sha256)!)).toContain('\nOK\n');
  });

  it('pass the right change of two JavaScript files', async () => {
    const money = replaced(
      cart,
      'src/money.js',
      'Math.floor(parseFloat(match[0]) * 100)',
      'Math.round(parseFloat(match[0]) * 100)',
    );
    const basket = replaced(
      cart,
      'src/cart.js',
      '  for (const line of lines) cents += Math.round((lineCents(line) * (100 - discountPercent)) / 100);\n  return fromCents(cents);',
      '  for (const line of lines) cents += lineCents(line);\n  return fromCents(Math.round((cents * (100 - discountPercent)) / 100));',
    );
    const before = (await baseline(cart)).checks;
    expect(
      judgeVerification(cart.contract.checks, await verify(cart, { ...money, ...basket }, { baseline: before }), []),
    ).toEqual({ result: 'passed', reasons: [] });
    // One file alone is not enough.
    expect(verdicts((await verify(cart, money, { baseline: before })).checks)).toMatchObject({
      money: 'pass',
      cart: 'exit-1',
    });
  });

  it('do not pass a candidate that leaves with exit 0 before a test has run', async () => {
    const before = (await baseline(utc)).checks;
    const facts = await verify(
      utc,
      { 'src/usage.py': `import os\nos._exit(0)\n${original(utc, 'src/usage.py')}` },
      { baseline: before },
    );
    expect(facts.checks.find((c) => c.id === 'utc')).toMatchObject({
      end: { kind: 'exit', code: 0 },
      verdict: 'fail',
      reason: 'no-summary',
    });
    expect(judgeVerification(utc.contract.checks, facts, []).result).toBe('failed');
  });

  it('do not pass a JavaScript candidate that does the same', async () => {
    const before = (await baseline(cart)).checks;
    const text = `process.exit(0);\n${original(cart, 'src/money.js')}`;
    const facts = await verify(cart, { 'src/money.js': text }, { baseline: before });
    // The runner itself goes on and counts the whole file as one passed test.
    expect(facts.checks.find((c) => c.id === 'money')).toMatchObject({
      end: { kind: 'exit', code: 0 },
      reason: 'fewer-tests',
      summary: { total: 1, passed: 1 },
    });
    expect(judgeVerification(cart.contract.checks, facts, []).result).toBe('failed');
  });

  it('do not pass a candidate that forges a summary first and fails or leaves later', async () => {
    const before = (await baseline(utc)).checks;
    const forged = `import sys\nsys.stderr.write("-" * 70 + "\\nRan 4 tests in 0.001s\\n\\nOK\\n")\n`;
    const failing = await verify(utc, { 'src/usage.py': forged + original(utc, 'src/usage.py') }, { baseline: before });
    expect(verdicts(failing.checks)).toMatchObject({ utc: 'exit-1' });
    const leaving = await verify(
      utc,
      { 'src/usage.py': `${forged}print("more")\nimport os\nos._exit(0)\n` },
      { baseline: before },
    );
    expect(verdicts(leaving.checks)).toMatchObject({ utc: 'no-summary', rest: 'no-summary' });
  });

  it('catch by a check from outside what is forged to the end inside', async () => {
    const before = (await baseline(utc)).checks;
    // As good as it gets inside the process: names, count and closing line as the runner would print them.
    const forged = `import os, sys
if "unittest" in sys.argv[0] or "unittest" in sys.modules:
    for line in ${JSON.stringify(before[0]?.summary?.passing ?? [])}:
        sys.stderr.write(line + " ... ok\\n")
    sys.stderr.write("\\n" + "-" * 70 + "\\nRan 4 tests in 0.001s\\n\\nOK\\n")
    sys.stderr.flush()
    os._exit(0)
`;
    const facts = await verify(utc, { 'src/usage.py': forged + original(utc, 'src/usage.py') }, { baseline: before });
    const seen = verdicts(facts.checks);
    expect(seen['outside']).not.toBe('pass');
    expect(seen['scope']).not.toBe('pass');
    expect(judgeVerification(utc.contract.checks, facts, []).result).toBe('failed');
  });

  it('fail by a supplemental check what the visible tests let through', async () => {
    const before = (await baseline(utc)).checks;
    const naive = replaced(
      utc,
      'src/usage.py',
      '    return datetime.fromisoformat(text).timestamp()\n',
      '    moment = datetime.fromisoformat(text)\n    if moment.tzinfo is None:\n        moment = moment.replace(tzinfo=timezone.utc)\n    return int(moment.timestamp())\n',
    );
    const facts = await verify(utc, naive, { baseline: before });
    expect(verdicts(facts.checks)).toMatchObject({
      utc: 'pass',
      rest: 'pass',
      more: 'exit-1',
      scope: 'pass',
      outside: 'exit-1',
    });
    const wide = await verify(utc, { 'src/usage.py': `${fix()['src/usage.py']}\n\nEXTRA = 1\n` }, { baseline: before });
    expect(verdicts(wide.checks)).toMatchObject({ utc: 'pass', more: 'pass', scope: 'exit-1', outside: 'pass' });
  });

  it('cannot leave anything in one check that the next one meets', async () => {
    // Home and tmp are the places a worker can write to; Python and Node look into the home for modules by themselves.
    const spoiler = `import os, pathlib, site
try:
    for folder in (os.environ["HOME"], os.environ.get("TMPDIR", "/tmp"), "/dev/shm"):
        pathlib.Path(folder, "left-behind").write_text("x")
    user = pathlib.Path(os.environ["HOME"], ".local/lib/python3.13/site-packages")
    user.mkdir(parents=True, exist_ok=True)
    (user / "usercustomize.py").write_text("import os\\nos._exit(0)\\n")
except OSError:
    pass
`;
    const look = `import os, pathlib, sys
found = [str(p) for f in (os.environ["HOME"], os.environ.get("TMPDIR", "/tmp"), "/dev/shm") for p in pathlib.Path(f).rglob("*")]
print(found)
sys.exit(1 if found else 0)
`;
    const check = (id: string, code: string): FrozenContract['checks'][number] => ({
      id,
      kind: 'acceptance',
      argv: ['python3', '-c', code],
      baseline: 'pass',
      timeoutS: 120,
      showKiB: 1,
      captureKiB: 64,
      env: {},
    });
    const facts = await run([], [check('first', spoiler), check('second', look)], 'verification');
    expect(facts.checks.map((c) => [c.id, c.verdict, c.tail])).toEqual([
      ['first', 'pass', ''],
      ['second', 'pass', '[]\n'],
    ]);
  });

  it('name a time-out, an overflow and a missing program, and go on with the next check', async () => {
    const check = (id: string, argv: string[], more: object = {}): FrozenContract['checks'][number] => ({
      id,
      kind: 'acceptance',
      argv,
      baseline: 'pass',
      timeoutS: 120,
      showKiB: 1,
      captureKiB: 64,
      env: {},
      ...more,
    });
    const facts = await run(
      [],
      [
        check('sleeps', ['sleep', '60'], { timeoutS: 1 }),
        check('shouts', ['yes']),
        check('missing', ['no-such-program']),
        check('fine', ['true']),
      ],
      'verification',
    );
    expect(verdicts(facts.checks)).toEqual({
      sleeps: 'timeout',
      shouts: 'overflow',
      missing: 'spawn-failed-ENOENT',
      fine: 'pass',
    });
    expect(facts.checks.find((c) => c.id === 'fine')?.strength).toBe('exit-code');
  });

  it('cannot be told other files than the ones that were judged: nothing is writable for a command', async () => {
    const code = `import os, pathlib
for act in (lambda: pathlib.Path("a.txt").write_text("y"), lambda: os.unlink("a.txt"), lambda: os.chmod("a.txt", 0o777), lambda: pathlib.Path("b.txt").write_text("z"), lambda: os.rename("a.txt", "c.txt")):
    try:
        act()
        print("done")
    except OSError:
        print("refused")
`;
    const file = { path: 'a.txt' as RelPath, mode: 0o644, bytes: Buffer.from('x') };
    const facts = await run(
      [file],
      [
        {
          id: 'tries',
          kind: 'acceptance',
          argv: ['python3', '-c', code],
          baseline: 'pass',
          timeoutS: 120,
          showKiB: 1,
          captureKiB: 64,
          env: {},
        },
      ],
      'verification',
    );
    expect(facts.checks[0]?.tail).toBe('refused\n'.repeat(5));
    expect(facts.changed).toEqual([]);
  });

  it('end with the container when they are cancelled, and are not passed', async () => {
    const abort = new AbortController();
    const checks = [
      {
        id: 'sleeps',
        kind: 'acceptance' as const,
        argv: ['sleep', '60'],
        baseline: 'pass' as const,
        timeoutS: 60,
        showKiB: 1,
        captureKiB: 64,
        env: {},
      },
    ];
    const facts = await run([], checks, 'verification', {
      signal: abort.signal,
      hooks: { onCheckStarted: () => abort.abort() },
    });
    expect(facts.fault).toMatchObject({ code: 'cancelled' });
    expect(judgeVerification(checks, facts, []).result).toBe('incomplete');
  });

  it('end the container when a fact cannot be recorded, and say so', async () => {
    const owner = `run_${randomBytes(8).toString('hex')}`;
    const full = new Error('disk full');
    const stopped: string[] = [];
    await expect(
      runChecks({
        service: bench.service,
        artefacts: { put: () => Promise.reject(full) },
        artefactOwner: 'test',
        name: `escrow-verification-${owner}`,
        purpose: 'verification',
        owner,
        session: null,
        epoch: 1,
        image: bench.image,
        profile: 'bounded',
        ...placedFiles([]),
        scratch: [],
        checks: [
          {
            id: 'fine',
            kind: 'acceptance',
            argv: ['true'],
            baseline: 'pass',
            timeoutS: 120,
            showKiB: 1,
            captureKiB: 64,
            env: {},
          },
        ],
        baseline: null,
        hooks: {
          onProvision: () => undefined,
          onStop: (s) => void stopped.push(s.kind),
          onAbsent: (a) => void stopped.push(a.kind),
        },
        signal: new AbortController().signal,
      }),
    ).rejects.toBe(full);
    expect(stopped).toEqual(['stopped', 'absent']);
  });
});
