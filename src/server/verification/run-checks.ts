import type { CheckResult, FrozenCheck, ProfileName } from '../../protocol/contract.ts';
import type { FileEntry } from '../../protocol/primitives.ts';
import type { LimitReceipt } from '../../protocol/attempt.ts';
import { SandboxFault } from '../sandbox/port.ts';
import type {
  AbsenceObservation,
  CommandSpec,
  ImageIdentity,
  ProvisionFact,
  QuiesceObservation,
  Sandbox,
  SandboxService,
  SandboxSpec,
  StopObservation,
} from '../sandbox/port.ts';
import type { ArtefactStore } from '../store/port.ts';
import { judgeCheck } from './judge.ts';
import type { RunFacts } from './judge.ts';

/** Bytes of output that views show at once; the whole is the artefact. */
const tailBytes = 8 * 1024;

/** Called in order and awaited, so that each fact can be made durable before the next step. */
export interface CheckHooks {
  readonly onProvision: (fact: ProvisionFact) => Promise<void> | void;
  readonly onCheckStarted?: (id: string, index: number, of: number) => Promise<void> | void;
  readonly onCheckFinished?: (result: CheckResult) => Promise<void> | void;
  readonly onStop: (seen: StopObservation) => Promise<void> | void;
  readonly onAbsent: (seen: AbsenceObservation) => Promise<void> | void;
}

export interface CheckRunInput {
  readonly service: SandboxService;
  readonly artefacts: Pick<ArtefactStore, 'put'>;
  /** Who is charged for the outputs. */
  readonly artefactOwner: string;
  /** Deterministic and durable before the call: `escrow-<purpose>-<run id>`. */
  readonly name: string;
  readonly purpose: 'baseline' | 'verification';
  /** The run's id. */
  readonly owner: string;
  readonly session: string | null;
  readonly epoch: number;
  readonly image: ImageIdentity;
  readonly profile: ProfileName;
  /** Everything that is placed; nothing of it can be written by the commands. See `verificationFiles`. */
  readonly files: readonly FileEntry[];
  readonly bytesOf: SandboxSpec['bytesOf'];
  readonly scratch: SandboxSpec['scratch'];
  /** Folders that get links to the image's packages. */
  readonly modules?: SandboxSpec['modules'];
  /** Variables of every command; a check's own come after them. */
  readonly environment?: Readonly<Record<string, string>>;
  /** In this order. */
  readonly checks: readonly FrozenCheck[];
  /** Results of the baseline, for the comparison of what ran; null for a baseline. */
  readonly baseline: readonly CheckResult[] | null;
  readonly hooks: CheckHooks;
  readonly signal: AbortSignal;
}

export interface CheckRun extends RunFacts {
  readonly limits: readonly LimitReceipt[];
  readonly quiesce: QuiesceObservation | null;
  /** Null when no container was ever asked for. */
  readonly stop: StopObservation | null;
  readonly absence: AbsenceObservation | null;
}

/**
 * Runs checks in a sandbox of their own and ends it: provision, each check, read every file back, quiesce, detach, kill
 * and confirm, remove and confirm. Whatever fails, the container is ended and what was seen is in the result; only a
 * hook or the artefact store can make it throw (after the container was ended).
 */
export async function runChecks(input: CheckRunInput): Promise<CheckRun> {
  const checks: CheckResult[] = [];
  let fault: CheckRun['fault'] = null;
  let changed: readonly string[] | null = null;
  let limits: readonly LimitReceipt[] = [];
  let quiesce: QuiesceObservation | null = null;
  let sandbox: Sandbox | null = null;
  let engineId: string | null = null;
  let defect: { readonly error: unknown } | null = null;

  try {
    sandbox = await input.service.provision(
      specOf(input),
      async (fact) => {
        if (fact.kind === 'created') ({ engineId } = fact);
        if (fact.kind === 'limits') ({ limits } = fact);
        await input.hooks.onProvision(fact);
      },
      input.signal,
    );
    limits = sandbox.limits;
    for (const [index, check] of input.checks.entries()) {
      if (input.signal.aborted) throw new SandboxFault('cancelled', 'the run was cancelled');
      await input.hooks.onCheckStarted?.(check.id, index, input.checks.length);
      const result = await runOne(input, sandbox, check);
      checks.push(result);
      await input.hooks.onCheckFinished?.(result);
      if (result.end.kind === 'cancelled') throw new SandboxFault('cancelled', 'the run was cancelled');
    }
    changed = differences(input.files, await sandbox.manifest());
    quiesce = await sandbox.quiesce();
  } catch (error) {
    if (SandboxFault.is(error)) fault = { code: error.code, message: error.message };
    else defect = { error };
  }

  // From here on nothing is skipped: the container is ended whatever happened before.
  sandbox?.detach();
  const target = engineId ?? input.name;
  const stop = await input.service.kill(target);
  let absence: AbsenceObservation | null = null;
  try {
    await input.hooks.onStop(stop);
  } catch (error) {
    defect ??= { error };
  }
  if (stop.kind !== 'unconfirmed') {
    absence = await input.service.remove(target);
    try {
      await input.hooks.onAbsent(absence);
    } catch (error) {
      defect ??= { error };
    }
  }
  if (defect !== null) throw defect.error;
  return { checks, changed, fault: namedFault(fault, stop), limits, quiesce, stop, absence };
}

/**
 * What came to an end because the container's memory did is no fault of the channel or the engine, over which it was
 * noticed. Named as the outcome of an attempt is.
 */
function namedFault(fault: CheckRun['fault'], stop: StopObservation): CheckRun['fault'] {
  if (fault === null || (fault.code !== 'channel' && fault.code !== 'engine')) return fault;
  if (stop.kind !== 'stopped' || !stop.oom.ended) return fault;
  return { code: 'oom_killed', message: fault.message };
}

function specOf(input: CheckRunInput): SandboxSpec {
  const commands: CommandSpec[] = input.checks.map((check) => ({
    id: check.id,
    argv: check.argv,
    timeoutS: check.timeoutS,
    captureKiB: check.captureKiB,
    env: { ...input.environment, ...check.env },
  }));
  return {
    name: input.name,
    purpose: input.purpose,
    owner: input.owner,
    session: input.session,
    epoch: input.epoch,
    image: input.image,
    profile: input.profile,
    files: input.files,
    bytesOf: input.bytesOf,
    // Nobody reads or writes here but the commands.
    readable: [],
    writable: [],
    scratch: input.scratch,
    modules: input.modules ?? [],
    commands,
  };
}

async function runOne(input: CheckRunInput, sandbox: Sandbox, check: FrozenCheck): Promise<CheckResult> {
  const ran = await sandbox.run(check.id, input.signal);
  // Durable before it is judged: what a verdict rests on can be read again.
  const output = await input.artefacts.put(ran.output, input.artefactOwner);
  const before = input.baseline?.find((result) => result.id === check.id)?.summary ?? null;
  const judged = judgeCheck(
    { argv: check.argv, end: ran.end, output: ran.output, outputCut: ran.outputCut },
    check.kind === 'acceptance' ? before : null,
  );
  return {
    id: check.id,
    kind: check.kind,
    argv: [...check.argv],
    end: ran.end,
    durationMs: ran.durationMs,
    verdict: judged.verdict,
    reason: judged.reason,
    strength: judged.strength,
    summary: judged.summary,
    output,
    outputCut: ran.outputCut,
    tail: tailOf(ran.output),
  };
}

/** The end of the output as text, cut at a line where there is one. Hostile text: shown only as text. */
export function tailOf(output: Uint8Array): string {
  if (output.byteLength <= tailBytes) return Buffer.from(output).toString('utf8');
  const tail = Buffer.from(output.subarray(output.byteLength - tailBytes)).toString('utf8');
  const line = tail.indexOf('\n');
  return line >= 0 && line < tail.length - 1 ? tail.slice(line + 1) : tail;
}

/** Paths that are not what was placed: changed, vanished or new. Files of scratch folders are not in a manifest. */
export function differences(placed: readonly FileEntry[], found: readonly FileEntry[]): readonly string[] {
  const seen = new Map(found.map((entry) => [entry.path, entry]));
  const wrong: string[] = [];
  for (const file of placed) {
    const entry = seen.get(file.path);
    seen.delete(file.path);
    if (entry === undefined || entry.sha256 !== file.sha256 || entry.mode !== file.mode) wrong.push(file.path);
  }
  return [...wrong, ...seen.keys()].toSorted();
}
