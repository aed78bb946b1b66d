import { unreachable } from '../../protocol/primitives.ts';
import {
  SettlementTrigger,
  type AttemptOutcome,
  type AttemptPhase,
  type SettlementStep,
  type SettlementView,
} from '../../protocol/attempt.ts';
import type { Binding } from '../../protocol/binding.ts';
import type { CandidateView, IntegrationView } from '../../protocol/views.ts';
import type { CheckResult, CommandEnd } from '../../protocol/contract.ts';
import type { Localize } from './tree-node.ts';

/** The Kernel sends codes; these are the words for people. */
export function phaseWords(phase: AttemptPhase, t: Localize): string {
  switch (phase) {
    case 'reserved':
      return t('reserved');
    case 'provisioning':
      return t('preparing the sandbox');
    case 'running':
      return t('running');
    case 'quiescing':
      return t('ending its processes');
    case 'collecting':
      return t('collecting bytes');
    case 'stopping':
      return t('stopping the container');
    case 'releasing':
      return t('removing the container');
    case 'settled':
      return t('settled');
    case 'cancellation_pending':
      return t('stop not confirmed');
    default:
      return unreachable(phase, 'phase');
  }
}

export function outcomeWords(outcome: AttemptOutcome, t: Localize): string {
  switch (outcome) {
    case 'candidate':
      return t('candidate');
    case 'no_change':
      return t('no change');
    case 'model_fault':
      return t('model fault');
    case 'limit':
      return t('budget reached');
    case 'resource':
      return t('out of resources');
    case 'transport':
      return t('inference failed');
    case 'infrastructure':
      return t('container engine failed');
    case 'cancelled':
      return t('cancelled');
    case 'interrupted':
      return t('interrupted');
    case 'lost':
      return t('lost, nothing recoverable');
    case 'incident':
      return t('incident, not reviewable');
    case 'incomplete':
      return t('bytes incomplete');
    default:
      return unreachable(outcome, 'outcome');
  }
}

export function triggerWords(trigger: SettlementTrigger, t: Localize): string {
  switch (trigger) {
    case 'finish':
      return t('the attempt finished');
    case 'limit':
      return t('a budget was reached');
    case 'fault':
      return t('a fault ended it');
    case 'cancel':
      return t('it was cancelled');
    case 'window_close':
      return t('its window closed');
    case 'ui_unreachable':
      return t('its window did not answer');
    case 'controller_lost':
      return t('its controller was lost');
    case 'kernel_drain':
      return t('the Kernel was stopped');
    case 'kernel_restart':
      return t('the Kernel died and was started again');
    case 'lease_expired':
      return t('its lease expired');
    default:
      return unreachable(trigger, 'trigger');
  }
}

export function stepWords(step: SettlementStep['step'], t: Localize): string {
  switch (step) {
    case 'revoke':
      return t('Authority withdrawn');
    case 'abort_generation':
      return t('Generation ended');
    case 'quiesce':
      return t('No process left');
    case 'collect':
      return t('Bytes collected');
    case 'stop':
      return t('Container stopped');
    case 'release':
      return t('Container removed');
    case 'engine_idle':
      return t('Inference engine idle');
    default:
      return unreachable(step, 'settlement step');
  }
}

/** Why a step of the settlement could not be observed; undefined where the record does not say. */
export function stepReasonWords(step: SettlementStep, t: Localize): string | undefined {
  const { reason, container } = step.facts;
  const code =
    typeof reason === 'string' ? reason : typeof container === 'string' ? `container_${container}` : undefined;
  return code === undefined ? undefined : settlementReasonWords(code, t);
}

/** The Kernel's codes for what kept it from seeing or reading something in a sandbox; others as they are. */
export function settlementReasonWords(code: string, t: Localize): string {
  switch (code) {
    case 'supervisor_silent':
      return t('the sandbox did not answer');
    case 'container_absent':
      return t('the container was gone');
    case 'container_created':
      return t('the container had not been started');
    case 'container_stopped':
      return t('the container had stopped');
    case 'container_paused':
      return t('the container was paused');
    case 'container_running':
      return t('the container still ran, and nothing in it answered');
    case 'container_unclear':
      return t('the state of the container was not clear');
    case 'container_no_answer':
      return t('the container engine did not answer');
    case 'storage_full':
      return t('no space was left to keep them');
    default:
      return code.replaceAll('_', ' ');
  }
}

/** What would show that a sandbox has ended, from what the Kernel recorded when it could not be seen. */
export function pendingWords(waitingFor: string, t: Localize): string {
  if (waitingFor.startsWith('container_engine')) return t('waits for the container engine to answer');
  const seen = /^container is (\w+)$/.exec(waitingFor)?.[1];
  switch (seen) {
    case undefined:
      return t('waits for its container to be seen');
    case 'running':
      return t('waits for its container to end: it was seen running');
    case 'paused':
      return t('waits for its container to end: it was seen paused');
    default:
      return t('waits for its container to be gone');
  }
}

/** Why an attempt ended as it did, by the Kernel's code: what began its settlement, a budget, or what was seen. */
export function outcomeReasonWords(reason: string, t: Localize): string {
  const trigger = SettlementTrigger.safeParse(reason);
  if (trigger.success) return triggerWords(trigger.data, t);
  switch (reason) {
    case 'requests':
      return t('all its requests were used');
    case 'wall':
      return t('its time was up');
    case 'output':
      return t('all its output tokens were used');
    case 'context':
      return t('its context was full');
    case 'oom_killed':
      return t('its memory was not enough');
    case 'storage':
    case 'no-space':
      return t('no space was left');
    case 'limit_not_in_force':
      return t('a limit of the sandbox was not in force');
    case 'files_changed_outside_scope':
      return t('files changed that its contract does not let change');
    case 'bytes_differ_from_audit':
      return t('its bytes are not those that were recorded');
    case 'scope_unavailable':
      return t('what its contract lets change could not be compared');
    case 'no_end_recorded':
      return t('how its work ended was not recorded');
    case 'nothing_collected':
    case 'not_collected':
      return t('its bytes were not collected');
    default:
      return settlementReasonWords(reason, t);
  }
}

/** What a settlement leaves unknown beside the steps that were not observed, in words. */
export function unknownOf(settlement: Pick<SettlementView, 'steps' | 'unknown'>, t: Localize): readonly string[] {
  const steps = new Set<string>(settlement.steps.filter(({ observed }) => !observed).map(({ step }) => step));
  return settlement.unknown.filter((code) => !steps.has(code)).map((code) => unknownWords(code, t));
}

function unknownWords(code: string, t: Localize): string {
  switch (code) {
    case 'bytes':
      return t('what it had written');
    case 'generation':
      return t('how its last request ended');
    case 'stop':
      return t('when the container stopped');
    case 'release':
      return t('whether the container is gone');
    default:
      return code.replaceAll('_', ' ');
  }
}

/** A fact of a settlement step, by its name in the record. */
export function factWords(name: string, t: Localize): string {
  switch (name) {
    case 'trigger':
      return t('because');
    case 'killed':
      return t('processes ended');
    case 'ms':
      return t('milliseconds');
    case 'exitCode':
      return t('exit code');
    case 'oomKilled':
      return t('out of memory, by the engine’s flag');
    case 'oomInside':
      return t('ended for memory, counted inside');
    case 'oomHost':
      return t('ended for memory, counted by this machine');
    case 'oomEvents':
      return t('ended for memory, by the engine’s events');
    case 'oomEventsWhole':
      return t('those events heard from start to end');
    case 'endedByOom':
      return t('ended by lack of memory');
    case 'finishedAt':
      return t('ended at');
    case 'reason':
      return t('reason');
    case 'container':
      return t('container');
    case 'absent':
      return t('gone');
    case 'files':
      return t('files');
    case 'state':
      return t('how much');
    case 'via':
      return t('read by');
    default:
      return name;
  }
}

export function verdictWords(verdict: CandidateView['verdict'], t: Localize): string {
  switch (verdict) {
    case 'unverified':
      return t('not verified');
    case 'passed':
      return t('passed');
    case 'failed':
      return t('failed');
    case 'incomplete':
      return t('incomplete');
    case 'flaky':
      return t('flaky: passed and failed on the same bytes');
    default:
      return unreachable(verdict, 'verdict');
  }
}

export function integrationWords(state: IntegrationView['state'], t: Localize): string {
  switch (state) {
    case 'intended':
      return t('being written');
    case 'integrated':
      return t('integrated');
    case 'refused':
      return t('not integrated');
    case 'undone':
      return t('undone');
    case 'undo_refused':
      return t('integrated, undo refused');
    case 'partial':
      return t('partly written');
    default:
      return unreachable(state, 'integration state');
  }
}

/** Why an integration, or its undoing, did not come about, by the Kernel's code. */
export function integrationReasonWords(reason: string, t: Localize): string {
  switch (reason) {
    case 'UnsavedChanges':
      return t('an editor holds unsaved changes');
    case 'BaseChanged':
      return t('files are not as they were at the freeze');
    case 'UnsafePath':
      return t('a path is not safe to write');
    case 'StorageFull':
      return t('no space is left in the folder');
    case 'StorageUnwritable':
      return t('the folder cannot be written');
    case 'interrupted':
      return t('it was interrupted');
    case 'internal':
      return t('something unexpected happened; the log of the Kernel says what');
    default:
      // A code of a newer Kernel, or what the system said of a file.
      return /^[\w-]+$/.test(reason) ? reason.replaceAll(/[_-]/g, ' ') : reason;
  }
}

/** How a command ended, from what was observed. */
export function endWords(end: CommandEnd, t: Localize): string {
  switch (end.kind) {
    case 'exit':
      return t('exit code {0}', end.code);
    case 'signal':
      return t('ended by {0}', end.signal);
    case 'timeout':
      return t('timed out after {0} s', Math.round(end.afterMs / 1000));
    case 'overflow':
      return t('output over {0} KiB', Math.round(end.limitBytes / 1024));
    case 'oom':
      return t('out of memory');
    case 'no-space':
      return t('failed with {0} full', end.area);
    case 'pids':
      return t('failed at the limit of processes');
    case 'hoard':
      return end.of === 'sockets' ? t('held too many sockets, or too much in them') : t('held too many file locks');
    case 'cancelled':
      return t('cancelled');
    case 'spawn-failed':
      return t('did not start ({0})', end.errno);
    case 'unknown':
      return t('end unknown');
    default:
      return unreachable(end, 'command end');
  }
}

/** Why a check did not pass, where its end alone does not say it; undefined where it does. `reason` is the Kernel's code. */
export function checkReasonWords(reason: string, t: Localize): string | undefined {
  switch (reason) {
    case 'not-executable':
      return t('its program cannot be executed');
    case 'not-found':
      return t('its program is not in the image');
    case 'killed':
      return t('killed from outside');
    case 'output-cut':
      return t('its output was cut, so nothing is known');
    case 'no-summary':
      return t('the summary of its tests is missing');
    case 'no-tests':
      return t('no test ran');
    case 'tests-failed':
      return t('tests failed');
    case 'fewer-tests':
      return t('fewer tests than at the baseline');
    case 'baseline-tests-missing':
      return t('tests that passed at the baseline are missing');
    default:
      return undefined;
  }
}

/** What is known of one run of a check, the strongest first: what its runner counted, or that only an exit code is known. */
export function checkWords(check: CheckResult, t: Localize): string {
  const { summary } = check;
  return [
    check.reason === null ? undefined : checkReasonWords(check.reason, t),
    summary === null ? undefined : t('{0} of {1} tests passed', summary.passed, summary.total),
    endWords(check.end, t),
    check.strength === 'exit-code' ? t('nothing but the exit code is known') : undefined,
  ]
    .filter((part) => part !== undefined)
    .join(' · ');
}

/** The model's name with what must never be left out of it: that a script spoke, or that nothing vouches for it. */
export function bindingWords(binding: Binding, t: Localize): string {
  return binding.synthetic
    ? t('{0} · synthetic', scriptName(binding.model.tag))
    : t('{0} · qualification: none', binding.model.tag);
}

/** What the binding takes away from every result under it, in one word or two. */
export function standingWords(binding: Binding, t: Localize): string {
  return binding.synthetic ? t('synthetic') : t('qualification: none');
}

/** A rehearsal's "model" is a script, often by its path: the file's name is enough in a row. */
export function scriptName(tag: string): string {
  return tag.split(/[\\/]/).at(-1) ?? tag;
}

/** The first twelve digits of a digest, as people compare them. */
export function shortDigest(digest: string): string {
  return digest.replace(/^sha256:/, '').slice(0, 12);
}
