import type { BaselineView, CheckResult, CommandEnd, FileScope, FrozenSymbol } from '../protocol/contract.ts';
import { unreachable } from '../protocol/primitives.ts';
import { readRunReason } from '../protocol/run-reason.ts';
import type { ActivityItem, AttemptView, InventoryChange, SettlementView } from '../protocol/attempt.ts';
import type { Binding } from '../protocol/binding.ts';
import type { Health } from '../protocol/status.ts';
import type { CandidateView, IntegrationView, SessionView, VerificationView } from '../protocol/views.ts';
import { styled, type Part, type Style } from './output.ts';
import { checkReasonText, runReasonText } from './run-reason-text.ts';
import { shorten, visibleLine, visibleLines } from './visible.ts';

/** Lines of parts: what a view looks like on a terminal. Pure; printing sanitises. */
export type Lines = readonly (readonly Part[])[];

/** The first twelve digits of a digest: enough to name bytes to a person. Programs get all of it by --json. */
export const short = (digest: string): string => digest.replace(/^sha256:/, '').slice(0, 12);

/** Local date and time to the second. */
export function time(at: number): string {
  const d = new Date(at);
  const two = (n: number): string => String(n).padStart(2, '0');
  return `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} ${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;
}

/** Bytes for people: 12 bytes, 1.5 KiB, 4.2 MiB. */
export function bytesText(bytes: number): string {
  if (bytes < 1024) return `${bytes} bytes`;
  return bytes < 1024 ** 2 ? `${(bytes / 1024).toFixed(1)} KiB` : `${(bytes / 1024 ** 2).toFixed(1)} MiB`;
}

/** Milliseconds for people: 350 ms, 4.2 s, 3 min 5 s. */
export function duration(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  return `${Math.floor(ms / 60_000)} min ${Math.round((ms % 60_000) / 1000)} s`;
}

/** Bytes for people, in GiB. */
export function gibibytes(bytes: number): string {
  return `${(bytes / 1024 ** 3).toFixed(1)} GiB`;
}

/** How a command ended, in words. */
export function endOf(end: CommandEnd): string {
  switch (end.kind) {
    case 'exit':
      return `exit status ${end.code}`;
    case 'signal':
      return `ended by ${end.signal}`;
    case 'timeout':
      return `timed out after ${duration(end.afterMs)}`;
    case 'overflow':
      return `printed more than ${Math.round(end.limitBytes / 1024)} KiB`;
    case 'oom':
      return 'out of memory';
    case 'no-space':
      return `failed with ${end.area} full`;
    case 'pids':
      return 'failed at the limit of processes';
    case 'hoard':
      return end.of === 'sockets' ? 'held too many sockets, or too much in them' : 'held too many file locks';
    case 'cancelled':
      return 'cancelled';
    case 'spawn-failed':
      return `did not start (${end.errno})`;
    case 'unknown':
      return `unknown: ${end.reason}`;
    default:
      return unreachable(end, 'command end');
  }
}

const mark = (ok: boolean | null): Part =>
  ok === null ? styled('dim', '·') : ok ? styled('green', '✓') : styled('red', '✗');

/** One check: verdict, how it ended, what its runner counted, and the tail of its output when it did not pass. */
export function checkLines(check: CheckResult, expected: 'pass' | 'fail' | null, tail: boolean): Lines {
  const good = expected === null ? check.verdict === 'pass' : check.verdict === expected;
  const counts =
    check.summary === null
      ? 'exit code only'
      : `${check.summary.runner}: ${check.summary.passed} of ${check.summary.total} passed`;
  const lines: (readonly Part[])[] = [
    [
      '  ',
      mark(good),
      ` ${check.id}: ${check.verdict}`,
      expected === null ? '' : ` (expected ${expected})`,
      styled('dim', ` · ${endOf(check.end)} · ${counts} · ${duration(check.durationMs)}`),
      // How it ended is said already.
      check.reason === null || check.end.kind !== 'exit' || check.reason.startsWith('exit-')
        ? ''
        : ` · ${checkReasonText(check.reason)}`,
    ],
  ];
  if (tail && check.tail.trim() !== '')
    for (const line of visibleLines(check.tail.trimEnd()).slice(-12))
      lines.push([styled('dim', `      ${shorten(line, 160)}`)]);
  return lines;
}

/** A baseline run: whether the checks tell broken from fixed. */
export function baselineLines(baseline: BaselineView, declared: ReadonlyMap<string, 'pass' | 'fail' | null>): Lines {
  const good = baseline.result === 'discriminates';
  return [
    [
      'baseline ',
      styled(good ? 'green' : 'red', baseline.result.replaceAll('-', ' ')),
      styled('dim', ` · ${baseline.runId} · image ${short(baseline.imageDigest)}`),
    ],
    ...baseline.checks.flatMap((check) => {
      const expected = declared.get(check.id) ?? null;
      return checkLines(check, expected, expected !== null && check.verdict !== expected);
    }),
    ...baseline.problems.map((problem): readonly Part[] => ['  ', styled('yellow', '! '), runReasonText(problem)]),
  ];
}

const witnessWords: Readonly<Record<Binding['model']['witness'], string>> = {
  engine: 'the engine alone',
  host: 'this host',
  both: 'engine and host',
  none: 'nobody',
};

/** Options and switches of a binding, as they are sent and kept on every request. */
export function optionsLine(binding: Binding): readonly Part[] {
  const { options, switches } = binding;
  const names = (on: boolean): string =>
    Object.entries(switches)
      .filter(([, value]) => value === on)
      .map(([name]) => name)
      .join(', ') || 'none';
  return [
    `context ${options.numCtx} · output ${options.numPredict} · temperature ${options.temperature} · seed ${options.seed} · think ${String(options.think)} · draft ${options.draftNumPredict} · keep alive ${options.keepAlive}`,
    styled('dim', ` · help on: ${names(true)} · off: ${names(false)}`),
  ];
}

/** Who works, and what that is worth. */
export function bindingLine(binding: Binding): readonly Part[] {
  return [
    `${binding.engine.kind} ${binding.engine.version} · ${binding.model.tag}`,
    binding.model.digest === null ? '' : ` (${short(binding.model.digest)})`,
    binding.synthetic ? styled('yellow', ' · synthetic: a script spoke, no model') : '',
    ` · vouched for by ${witnessWords[binding.model.witness]}`,
    binding.model.unproven.length === 0 ? '' : styled('yellow', ` · unproven: ${binding.model.unproven.join(', ')}`),
    ` · qualification: ${binding.qualification}`,
    styled(
      'dim',
      ` · image ${short(binding.image.digest)} · executor ${short(binding.executorDigest)} · profile ${binding.profile.name}`,
    ),
  ];
}

/** One step of an attempt's activity. */
export function activityLines(item: ActivityItem): Lines {
  const title = visibleLine(item.title);
  // A command's text is what its title ends with already.
  const text = visibleLines(item.text.trimEnd()).filter((line) => line.trim() !== '' && !title.endsWith(line));
  const shown = text.slice(0, 6).map((line): readonly Part[] => [styled('dim', `      ${shorten(line, 160)}`)]);
  const more = text.length > 6 ? [[styled('dim', `      … ${text.length - 6} more lines`)]] : [];
  const style: Style = item.kind === 'denied' ? 'red' : item.kind === 'hint' ? 'yellow' : 'cyan';
  return [['  ', mark(item.ok), ' ', styled(style, item.kind.padEnd(8)), shorten(title, 160)], ...shown, ...more];
}

/** A fact for people: at most one digit after the point. */
function factText(value: string | number | boolean | null): string {
  return typeof value === 'number' ? String(Math.round(value * 10) / 10) : String(value);
}

/** The recorded end of an attempt: only what was observed, and what is not known by name. */
export function settlementLines(settlement: SettlementView): Lines {
  const steps = settlement.steps.map((step): readonly Part[] => [
    '    ',
    step.observed ? styled('green', '✓') : styled('yellow', '?'),
    ` ${step.step.replaceAll('_', ' ')}`,
    styled(
      'dim',
      Object.entries(step.facts)
        .map(([key, value]) => ` · ${key} ${factText(value)}`)
        .join(''),
    ),
    step.observed ? '' : styled('yellow', ' · not observed'),
  ]);
  return [
    [
      '  settlement ',
      settlement.confirmed
        ? styled('green', 'confirmed')
        : styled('yellow', settlement.settledAt === null ? 'going on' : 'not confirmed'),
      ` · set off by ${settlement.trigger}`,
      settlement.settledAt === null
        ? ''
        : styled('dim', ` · ${duration(settlement.settledAt - settlement.requestedAt)}`),
    ],
    ...steps,
    ...(settlement.unknown.length === 0 ? [] : [['    unknown: ', settlement.unknown.join(', ')]]),
    ...(settlement.supervised === null
      ? []
      : [
          [
            `    ended by ${settlement.supervised.by} (${settlement.supervised.channel}) at ${time(settlement.supervised.at)}; the engine said ${settlement.supervised.saw}: `,
            settlement.supervised.why,
          ],
        ]),
  ];
}

const told = (value: number | null, words: (value: number) => string): string =>
  value === null ? 'unavailable' : words(value);
/** Changes at the engine that are shown one by one. */
const changesShown = 20;

/** What the requests took, what they ran on, and what changed at the engine meanwhile. */
function metricsLines(attempt: AttemptView): Lines {
  const { metrics, engine } = attempt;
  const count = (n: number): string => String(n);
  const lines: (readonly Part[])[] = [];
  if (metrics.requests > 0)
    lines.push([
      `  inference ${duration(metrics.inferenceMs)} on the wall · engine ${told(metrics.providerMs, duration)} · loading ${told(metrics.loadMs, duration)} · cached tokens ${told(metrics.cachedTokens, count)}`,
      metrics.failed === 0 ? '' : ` · ${metrics.failed} failed`,
      metrics.wallMs === null ? '' : ` · whole attempt ${duration(metrics.wallMs)}`,
    ]);
  if (engine === null) return lines;
  lines.push([
    `  placement ${engine.device ?? 'device unavailable'} · driver ${engine.driver ?? 'unavailable'} · on GPU ${told(engine.gpuShare, (share) => `${Math.round(share * 100)} %`)} · layers ${told(engine.layersOffloaded, count)} · loaded ${told(engine.loadedBytes, gibibytes)} · cache ${told(engine.kvBytes, gibibytes)}`,
  ]);
  if (engine.memory !== null)
    lines.push([
      `  memory free ${gibibytes(engine.memory.hostFree)} of ${gibibytes(engine.memory.hostTotal)} at the start`,
      engine.lowest === null ? '' : ` · least ${gibibytes(engine.lowest.hostFree)}`,
    ]);
  const changes = (what: string, list: readonly InventoryChange[] | null): void => {
    if (list === null) lines.push([`  ${what}: not known`]);
    else if (list.length > 0) {
      lines.push([`  ${what}:`]);
      for (const c of list.slice(0, changesShown))
        lines.push([
          `    ${c.what.replaceAll('_', ' ')} ${shorten(visibleLine(c.name), 80)}`,
          c.before === null ? '' : ` · was ${shorten(c.before, 60)}`,
          c.after === null ? '' : ` · is ${shorten(c.after, 60)}`,
        ]);
      if (list.length > changesShown) lines.push([`    … ${list.length - changesShown} more`]);
    }
  };
  if (engine.sinceLast !== null) changes('changed at the engine since the last attempt', engine.sinceLast);
  if (attempt.phase === 'settled') changes('changed at the engine during this attempt', engine.during);
  return lines;
}

/** One attempt, without its activity. */
export function attemptLines(attempt: AttemptView): Lines {
  const inForce = attempt.limits.filter((limit) => limit.inForce).length;
  const lines: (readonly Part[])[] = [
    [
      styled('bold', `attempt ${attempt.number} `),
      attempt.outcome === null
        ? attempt.phase.replaceAll('_', ' ')
        : styled(attempt.outcome.kind === 'candidate' ? 'green' : 'yellow', attempt.outcome.kind),
      attempt.outcome === null || attempt.outcome.kind === 'candidate'
        ? ''
        : ` · ${attempt.outcome.reason}: ${shorten(attempt.outcome.detail, 200)}`,
      styled(
        'dim',
        ` · ${attempt.id} · ${attempt.requests} requests · ${attempt.promptTokens} + ${attempt.outputTokens} tokens`,
      ),
    ],
    ...metricsLines(attempt),
  ];
  if (attempt.pending !== null) {
    lines.push([
      '  ',
      styled('red', 'cancellation pending'),
      ` since ${time(attempt.pending.since)}: waits for ${attempt.pending.waitingFor}`,
    ]);
  }
  if (attempt.limits.length > 0) lines.push([`  limits in force: ${inForce} of ${attempt.limits.length}`]);
  for (const limit of attempt.limits) {
    if (!limit.inForce)
      lines.push([
        '    ',
        styled('red', '✗'),
        ` ${limit.name}: wanted ${limit.wanted}, inside ${limit.inside ?? 'unavailable'}, outside ${limit.outside ?? 'unavailable'}`,
      ]);
  }
  if (attempt.container !== null) lines.push([`  container ${attempt.container.name}: ${attempt.container.state}`]);
  if (attempt.collection !== null) {
    lines.push([
      `  collection ${attempt.collection.state}`,
      attempt.collection.reason === null ? '' : ` · ${attempt.collection.reason}`,
    ]);
  }
  if (attempt.feedback !== null) lines.push(['  was told: ', shorten(attempt.feedback, 200)]);
  return [...lines, ...(attempt.settlement === null ? [] : settlementLines(attempt.settlement))];
}

/** What of a file may change, as the contract names it. */
export function symbolText(symbols: readonly FrozenSymbol[]): string {
  return symbols.map(({ name, exists }) => (exists ? name : `new ${name}`)).join(', ');
}

/** Whether a file stayed within its symbols, and where not. */
function scopeText({ symbols, outcome, reason, line, found, expected }: FileScope): string {
  const only = symbolText(symbols);
  if (outcome === 'inside') return `only ${only} changed`;
  if (outcome === 'not-checked') return 'not compared, so nothing is known';
  const what = (reason ?? 'unknown').replaceAll('-', ' ');
  const place = line === null ? '' : `, line ${line}`;
  const is = found === null || found === '' ? '' : `: ${found}`;
  const was = expected === null || expected === '' ? '' : ` (was: ${expected})`;
  return `outside of ${only}: ${what}${place}${is}${was}`;
}

/** What compared it: package and version, and the grammar by the beginning of its hash. */
function grammarText({ grammar }: FileScope): string {
  if (grammar === undefined) return '';
  return ` · compared by ${grammar.package} ${grammar.version}, ${grammar.language} ${short(grammar.grammar)}`;
}

const scopeLabels: Readonly<Record<FileScope['outcome'], Part>> = {
  inside: styled('green', 'in scope'),
  outside: styled('red', 'out of scope'),
  'not-checked': styled('yellow', 'scope not known'),
};

/** False for a reason that the lines of the scope or of a check say better. */
function isOwnReason(line: string, checks: readonly CheckResult[]): boolean {
  const reason = readRunReason(line);
  if (reason.kind === 'check') return !checks.some(({ id, verdict }) => id === reason.id && verdict === 'fail');
  return reason.kind !== 'out-of-scope' && reason.kind !== 'scope-not-checked';
}

/** A verification run with its checks. */
export function verificationLines(verification: VerificationView): Lines {
  const result = verification.result ?? verification.state;
  return [
    [
      '  verification ',
      styled(result === 'passed' ? 'green' : 'yellow', result),
      styled('dim', ` · ${verification.runId}`),
    ],
    ...verification.scope.map((scope): readonly Part[] => [
      '    ',
      scopeLabels[scope.outcome],
      ` ${scope.path}: ${scopeText(scope)}`,
      styled('dim', grammarText(scope)),
    ]),
    ...verification.checks
      .flatMap((check) => checkLines(check, null, check.verdict !== 'pass'))
      .map((line) => ['  ', ...line]),
    ...verification.reasons
      .filter((reason) => isOwnReason(reason, verification.checks))
      .map((reason): readonly Part[] => ['    ', styled('yellow', '! '), runReasonText(reason)]),
  ];
}

/** What integration did to the working tree. */
export function integrationLines(integration: IntegrationView): Lines {
  const good = integration.state === 'integrated' || integration.state === 'undone';
  return [
    [
      '  integration ',
      styled(good ? 'green' : 'red', integration.state.replaceAll('_', ' ')),
      integration.reason === null ? '' : ` · ${integration.reason}`,
      styled('dim', ` · ${integration.id} · ${integration.files.join(', ')}`),
    ],
    ...(integration.unsaved === 'unknown' ? [['    unsaved editors: unknown (no window could be asked)']] : []),
    ...(integration.moved.length === 0
      ? []
      : [[`    verified against a base that has moved: ${integration.moved.join(', ')}`]]),
  ];
}

/** A candidate with its verifications, decision and integrations. */
export function candidateLines(candidate: CandidateView): Lines {
  const style: Style = candidate.verdict === 'passed' ? 'green' : 'yellow';
  return [
    [
      styled('bold', `candidate ${short(candidate.digest)} `),
      styled(style, candidate.verdict),
      ` · by ${candidate.author === 'rehearsal' ? 'a rehearsal script' : candidate.author}`,
      candidate.eligible ? '' : styled('yellow', ' · not eligible for verification'),
    ],
    ...candidate.files.map((file): readonly Part[] => [`  ${file.change.padEnd(9)} ${file.path}`]),
    ...candidate.verifications.flatMap(verificationLines),
    ...(candidate.decision === null
      ? []
      : [
          [
            '  decision ',
            styled(candidate.decision.kind === 'accept' ? 'green' : 'yellow', candidate.decision.kind),
            ` by ${candidate.decision.reviewer} (as asserted, by ${candidate.decision.channel})`,
            candidate.decision.comment === '' ? '' : `: ${shorten(candidate.decision.comment, 200)}`,
          ],
        ]),
    ...candidate.integrations.flatMap(integrationLines),
  ];
}

/** A whole session. */
export function sessionLines(session: SessionView): Lines {
  return [
    [styled('bold', session.title), styled('dim', ` · ${session.id}`)],
    [
      `state      ${session.state}`,
      session.queuePosition === null ? '' : ` · number ${session.queuePosition} in the queue`,
    ],
    [`contract   ${short(session.contractDigest)} · ${session.contractPath}`],
    ['binding    ', ...bindingLine(session.binding)],
    ['options    ', ...optionsLine(session.binding)],
    ...(session.live === null
      ? []
      : [[`running    request ${session.live.n}: ${session.live.state}, ${duration(session.live.sinceMs)}`]]),
    [
      'controller ',
      session.controller === null
        ? 'nobody'
        : `${session.controller.name}${session.controller.connected ? '' : ' (gone)'}`,
      session.observers === 0 ? '' : ` · ${session.observers} observing`,
    ],
    [`attempts   ${session.budget.used} of ${session.budget.attempts}`],
    ...session.attempts.flatMap(attemptLines),
    ...session.candidates.flatMap(candidateLines),
  ];
}

/** One line about the health of a part, and what to do when it isn't well. */
export function healthLines(name: string, health: Health, detail = ''): Lines {
  const style: Style = health.state === 'ok' ? 'green' : health.state === 'unavailable' ? 'red' : 'yellow';
  return [
    [
      name.padEnd(12),
      styled(style, health.state),
      detail === '' ? '' : ` · ${detail}`,
      health.detail === '' || health.detail === detail ? '' : ` · ${health.detail}`,
    ],
    ...(health.next === '' ? [] : [[styled('dim', '            → '), health.next]]),
  ];
}
