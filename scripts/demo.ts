// npm run demo [-- --model TAG] [--json] [--yes]: the main job from freeze to settlement on the example, through the
// built command line, in a temporary repository with a state folder of its own. Exit code 0 only if all of it held.
import { createHash } from 'node:crypto';
import { cp, mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { parseArgs } from 'node:util';
import type { BaselineView, CheckResult, ContractView } from '../src/protocol/contract.ts';
import { processStart } from '../src/protocol/process-identity.ts';
import type { KernelStatus } from '../src/protocol/status.ts';
import type { IntegrationView, SessionView } from '../src/protocol/views.ts';
import { visibleLine } from '../src/cli/visible.ts';
import { bundle, bundleNames, copyAssets } from './lib/bundle.ts';
import { escrow, type CliResult } from './lib/cli.ts';
import { engineHere } from './lib/engine-here.ts';
import { root } from './lib/root.ts';
import { run } from './lib/run.ts';
import { setUp } from './lib/set-up.ts';
import { createUi, reportFailure, SetupError } from './lib/ui.ts';

const { values } = parseArgs({
  options: { model: { type: 'string' }, json: { type: 'boolean' }, yes: { type: 'boolean' } },
});

/** Narration goes to stdout, or to stderr where stdout carries JSON. What models and programs said is made visible. */
function say(line: string): void {
  (values.json === true ? process.stderr : process.stdout).write(`${visibleLine(line)}\n`);
}

interface Held {
  readonly what: string;
  readonly held: boolean;
  readonly observed: string;
}
const observed: Held[] = [];
/** One thing that must hold, and what was seen. */
function expectThat(what: string, held: boolean, seen: string): void {
  observed.push({ what, held, observed: seen });
  say(`   ${held ? '✓' : '✗'} ${what}: ${seen}`);
}

const durations: Record<string, number> = {};
const seconds = (ms: number): string => `${(ms / 1000).toFixed(1)} s`;

async function git(folder: string, ...args: readonly string[]): Promise<string> {
  const identity = ['-c', 'user.name=Escrow demo', '-c', 'user.email=demo@localhost', '-c', 'commit.gpgsign=false'];
  const { code, stdout, stderr } = await run('git', [...identity, ...args], {
    cwd: folder,
    env: { ...process.env, GIT_CONFIG_GLOBAL: '/dev/null', GIT_CONFIG_SYSTEM: '/dev/null' },
  });
  if (code !== 0) throw new Error(`git ${args[0] ?? ''} failed: ${stderr}`);
  return stdout;
}

/** The value of a command that must have ended with one of these codes; what it said otherwise. */
function must(result: CliResult, what: string, codes: readonly number[] = [0]): unknown {
  if (result.code === null || !codes.includes(result.code)) {
    throw new SetupError(
      `${what} ended with exit code ${result.code ?? 'none'}: ${result.stderr.trim() || JSON.stringify(result.value)}`,
      'The lines above say how far it came.',
    );
  }
  return result.value;
}

function describe(check: CheckResult): string {
  const counts =
    check.summary === null ? 'exit code only' : `${check.summary.passed} of ${check.summary.total} tests passed`;
  return `${check.verdict}, ${counts}, ${seconds(check.durationMs)}`;
}

/** What is common to a check in the JSON line. */
const checkRow = (check: CheckResult, expected: string | null) => ({
  id: check.id,
  kind: check.kind,
  verdict: check.verdict,
  expected,
  end: check.end,
  summary: check.summary,
});

async function demo(folder: string): Promise<Record<string, unknown>> {
  const home = path.join(folder, 'state');
  const project = path.join(folder, 'utc-timestamp');
  const at = { cwd: project, home };
  const engine = values.model === undefined ? 'rehearsal' : 'ollama';
  const model = values.model ?? 'utc-timestamp';

  say('1. A repository of its own, and a Kernel');
  await cp(path.join(root, 'examples', 'utc-timestamp'), project, {
    recursive: true,
    filter: (file) => !file.includes('__pycache__'),
  });
  await git(project, 'init', '-q', '-b', 'main');
  await git(project, 'add', '-A');
  await git(project, 'commit', '-q', '-m', 'Usage report that reads timestamps');
  const head = await git(project, 'rev-parse', 'HEAD');
  const started = await escrow(['kernel', 'start'], at);
  const status = must(started, 'escrow kernel start') as KernelStatus;
  durations['kernelStart'] = started.ms;
  say(`   Kernel ${status.version}, process ${status.pid}, started in ${seconds(started.ms)}; state in ${home}`);

  try {
    say('2. Freeze: the contract gets a digest, its files are kept by hash');
    const frozen = await escrow(['contract', 'freeze', 'utc-timestamp.contract.jsonc'], at);
    const contract = must(frozen, 'escrow contract freeze') as ContractView;
    durations['freeze'] = frozen.ms;
    say(`   ${contract.contract.title}: ${contract.digest}`);
    say(
      `   ${contract.contract.files.length} files; writable: ${contract.contract.writable.map((file) => file.path).join(', ')}`,
    );

    say('3. Baseline: the checks on the untouched snapshot, in the real sandbox');
    const ran = await escrow(['contract', 'baseline', contract.digest], at);
    const { baseline } = must(ran, 'escrow contract baseline', [0, 1]) as { readonly baseline: BaselineView | null };
    durations['baseline'] = ran.ms;
    const declared = new Map(contract.contract.checks.map((check) => [check.id, check.baseline] as const));
    for (const check of baseline?.checks ?? [])
      say(`   ${check.id}: ${describe(check)} (declared: ${declared.get(check.id) ?? 'nothing'})`);
    expectThat(
      'the checks tell broken from fixed',
      baseline?.result === 'discriminates',
      baseline?.result ?? 'no baseline',
    );

    say(
      `4. Session: ${engine === 'rehearsal' ? 'a rehearsal script speaks instead of a model, through the same adapter' : model}`,
    );
    let phase = '';
    const session = await escrow(['session', 'start', contract.digest, '--engine', engine, '--model', model], {
      ...at,
      onLine(line) {
        const { event } = line as { readonly event?: { readonly phase: string | null } };
        if (event === undefined || event.phase === null || event.phase === phase) return;
        phase = event.phase;
        say(`   … ${phase}`);
      },
    });
    const view = must(session, 'escrow session start', [0, 1]) as SessionView;
    durations['session'] = session.ms;
    const attempt = view.attempts.at(-1);
    const candidate = view.candidates.at(-1);
    const settlement = attempt?.settlement ?? null;
    const verification = candidate?.verifications.at(-1) ?? null;
    for (const item of attempt?.activity ?? []) {
      if (item.kind === 'tool' || item.kind === 'denied')
        say(`   ${item.kind === 'denied' ? 'denied' : 'tool'}: ${item.title}`);
    }
    const { binding } = view;
    say(
      `   binding: ${binding.engine.kind} ${binding.model.tag}, synthetic ${binding.synthetic}, qualification ${binding.qualification}`,
    );
    expectThat(
      'the binding says whether a model spoke',
      binding.synthetic === (engine === 'rehearsal'),
      `synthetic ${binding.synthetic}`,
    );
    const inForce = (attempt?.limits ?? []).filter((limit) => limit.inForce).length;
    expectThat(
      'every limit was read back in force',
      inForce > 0 && inForce === attempt?.limits.length,
      `${inForce} of ${attempt?.limits.length ?? 0}`,
    );
    expectThat(
      'the attempt brought a candidate',
      attempt?.outcome?.kind === 'candidate',
      attempt?.outcome?.kind ?? 'no outcome',
    );
    expectThat(
      'its bytes were collected completely',
      attempt?.collection?.state === 'complete',
      attempt?.collection?.state ?? 'none',
    );
    for (const step of settlement?.steps ?? [])
      say(`   settlement: ${step.step} ${step.observed ? 'observed' : 'NOT observed'} ${JSON.stringify(step.facts)}`);
    expectThat(
      'the end was observed',
      settlement?.confirmed === true,
      settlement?.confirmed === true ? 'container seen stopped, then absent' : 'not confirmed',
    );
    if (settlement !== null && settlement.unknown.length > 0) say(`   not known: ${settlement.unknown.join(', ')}`);

    say('5. Verification: snapshot, candidate, protected and hidden files in a fresh sandbox');
    for (const check of verification?.checks ?? []) say(`   ${check.id} (${check.kind}): ${describe(check)}`);
    const [scope] = verification?.scope ?? [];
    const symbols = scope?.symbols.map(({ name }) => name).join(', ') ?? 'nothing';
    expectThat(`nothing outside of ${symbols} changed`, scope?.outcome === 'inside', scope?.path ?? 'not compared');
    expectThat('the candidate passed', candidate?.verdict === 'passed', candidate?.verdict ?? 'no candidate');
    if (attempt !== undefined && settlement !== null && attempt.firstToolAt !== null) {
      durations['reservedToFirstTool'] = attempt.firstToolAt - attempt.reservedAt;
      durations['firstToolToEnd'] = settlement.requestedAt - attempt.firstToolAt;
      durations['settlement'] = (settlement.settledAt ?? settlement.requestedAt) - settlement.requestedAt;
    }
    if (verification !== null)
      durations['verificationChecks'] = verification.checks.reduce((sum, check) => sum + check.durationMs, 0);

    say('6. Review: the diff of exactly those bytes, then a decision bound to their digest');
    let after = view;
    let integration: IntegrationView | null = null;
    if (candidate !== undefined) {
      const shown = must(
        await escrow(['candidate', 'diff', view.id, candidate.digest], at),
        'escrow candidate diff',
      ) as {
        readonly files: readonly { readonly diff: string }[];
      };
      for (const file of shown.files) for (const line of file.diff.trimEnd().split('\n')) say(`   │ ${line}`);
    }
    if (candidate?.verdict === 'passed') {
      const accepted = await escrow(['candidate', 'accept', view.id, candidate.digest, '--reviewer', 'demo'], at);
      ({ session: after, integration } = must(accepted, 'escrow candidate accept', [0, 1]) as {
        readonly session: SessionView;
        readonly integration: IntegrationView | null;
      });
      durations['acceptAndIntegrate'] = accepted.ms;
      const decision = after.candidates.at(-1)?.decision;
      say(
        `   ${decision?.kind} by ${decision?.reviewer}, channel ${decision?.channel}: a script's decision, shown as one`,
      );
    }
    expectThat(
      'the candidate was integrated',
      integration?.state === 'integrated',
      integration?.state ?? 'nothing integrated',
    );
    const file = candidate?.files.find((each) => each.path === 'src/usage.py');
    const inTree = createHash('sha256')
      .update(await readFile(path.join(project, 'src', 'usage.py')))
      .digest('hex');
    expectThat(
      'the working tree holds exactly those bytes',
      file?.after?.sha256 === inTree,
      `src/usage.py is ${inTree.slice(0, 12)}`,
    );
    const changed = (await git(project, 'status', '--porcelain')).trim();
    expectThat(
      'nothing else changed',
      changed === 'M src/usage.py' && (await git(project, 'rev-parse', 'HEAD')) === head,
      changed === '' ? 'no change' : changed,
    );

    say('7. Nothing is left running');
    const last = after.attempts.at(-1);
    const left = await engineHere().list([`escrow.instance=${status.instanceId}`]);
    expectThat(
      'no container is left',
      left.length === 0,
      left.length === 0 ? 'the engine lists none' : left.map(({ name }) => name).join(', '),
    );
    return {
      contractDigest: contract.digest,
      binding,
      baseline: {
        result: baseline?.result ?? null,
        checks: (baseline?.checks ?? []).map((check) => checkRow(check, declared.get(check.id) ?? null)),
      },
      session: view.id,
      attempt: {
        outcome: last?.outcome?.kind ?? null,
        collection: last?.collection?.state ?? null,
        requests: last?.requests ?? 0,
      },
      candidateDigest: candidate?.digest ?? null,
      verification: {
        runId: verification?.runId ?? null,
        result: verification?.result ?? null,
        checks: (verification?.checks ?? []).map((check) => checkRow(check, 'pass')),
      },
      decision: after.candidates.at(-1)?.decision ?? null,
      integration:
        integration === null ? null : { id: integration.id, state: integration.state, files: integration.files },
      settlement: {
        confirmed: settlement?.confirmed ?? false,
        trigger: settlement?.trigger ?? null,
        steps: settlement?.steps ?? [],
        unknown: settlement?.unknown ?? [],
      },
      containersLeft: left.length,
    };
  } finally {
    const stopped = await escrow(['kernel', 'stop', '--settle'], at);
    durations['kernelStop'] = stopped.ms;
    expectThat(
      'the Kernel ended',
      stopped.code === 0 && (await processStart(status.pid)) === undefined,
      stopped.code === 0 ? `process ${status.pid} is gone` : stopped.stderr.trim(),
    );
  }
}

// Ctrl-C reaches the command that runs, which settles what it controls; this script then stops the Kernel and cleans up.
process.on('SIGINT', () => undefined);

const began = performance.now();
try {
  await setUp(createUi(values.yes === true), { engine: true, workbench: false });
  await Promise.all([...bundleNames.map((name) => bundle(name, false)), copyAssets()]);
  durations['setUp'] = performance.now() - began;
  const folder = await mkdtemp(path.join(tmpdir(), 'escrow-demo-'));
  try {
    const result = await demo(folder);
    durations['total'] = performance.now() - began;
    const held = observed.every((each) => each.held);
    say(held ? `All of it held, in ${seconds(durations['total'])}.` : 'Not all of it held; see the lines with ✗.');
    if (values.json === true) {
      const ms = Object.fromEntries(Object.entries(durations).map(([name, value]) => [name, Math.round(value)]));
      process.stdout.write(`${JSON.stringify({ held, ...result, durationsMs: ms, observed })}\n`);
    }
    process.exitCode = held ? 0 : 1;
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
} catch (error) {
  reportFailure(error);
  if (values.json === true) {
    const message = error instanceof Error ? error.message : String(error);
    process.stdout.write(`${JSON.stringify({ held: false, error: message, observed })}\n`);
  }
}
