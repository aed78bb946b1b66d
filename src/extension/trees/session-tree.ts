import { unreachable, type SessionId } from '../../protocol/primitives.ts';
import type { ActivityItem, AttemptView, LiveInference, SessionSummary, SessionView } from '../../protocol/views.ts';
import { commands } from '../ids.ts';
import { visible, visibleLines } from '../visible-text.ts';
import { isCurrent, type Operation, type WindowState, type WorkspaceListing } from '../window-state.ts';
import { candidateNode } from './candidate-tree.ts';
import { contextWords, node, stale, type Icon, type Localize, type TreeNode } from './tree-node.ts';
import { bindingWords, outcomeWords, phaseWords, scriptName, shortDigest, stepWords, triggerWords } from './words.ts';

export interface TreeWords {
  readonly t: Localize;
  /** A time of day, or with its date when it was another day. */
  readonly time: (at: number) => string;
  readonly number: (value: number) => string;
}

/** At most this many rows of activity are shown; the rest is in the evidence. */
const activityShown = 200;

const spinning: Icon = { id: 'loading~spin', tone: 'plain' };

function activityIcon(item: ActivityItem): Icon {
  switch (item.kind) {
    case 'request':
      return { id: 'arrow-up', tone: 'muted' };
    case 'receipt':
      return { id: 'arrow-down', tone: item.ok === false ? 'bad' : 'muted' };
    case 'think':
      return { id: 'lightbulb', tone: 'plain' };
    case 'message':
      return { id: 'comment', tone: 'plain' };
    case 'tool':
      return { id: 'tools', tone: 'plain' };
    case 'denied':
      return { id: 'circle-slash', tone: 'warning' };
    case 'result':
      return item.ok === false ? { id: 'error', tone: 'bad' } : { id: 'pass', tone: 'good' };
    case 'hint':
      return { id: 'info', tone: 'plain' };
    case 'person':
      return { id: 'person', tone: 'plain' };
    default:
      return unreachable(item.kind, 'activity');
  }
}

function activityNode(attempt: AttemptView, { t, time }: TreeWords): TreeNode | null {
  if (attempt.activity.length === 0) return null;
  const shown = attempt.activity.slice(-activityShown);
  const left = attempt.activity.length - shown.length;
  return node({
    id: `${attempt.id}/activity`,
    label: t('Activity'),
    description: String(attempt.activity.length),
    icon: { id: 'list-unordered', tone: 'plain' },
    children: [
      ...(left === 0
        ? []
        : [node({ id: `${attempt.id}/activity/left`, label: t('{0} earlier ones not shown', left) })]),
      ...shown.map((item) =>
        node({
          id: `${attempt.id}/activity/${item.n}`,
          label: visible(item.title, 120),
          description: visible(item.text, 120),
          tooltip: `${time(item.at)}\n${visibleLines(item.text, 2000)}`,
          icon: activityIcon(item),
          context: contextWords('text'),
          target: { kind: 'text', title: item.title, text: item.text },
          command: item.text === '' ? null : commands.showText,
        }),
      ),
    ],
  });
}

function settlementNode(attempt: AttemptView, { t, time }: TreeWords): TreeNode | null {
  const settlement = attempt.settlement;
  if (settlement === null) return null;
  const done = settlement.settledAt !== null;
  const rows = settlement.steps.map((step, index) => {
    const facts = Object.entries(step.facts).map(
      ([name, value]) => `${visible(name, 40)}: ${visible(String(value), 120)}`,
    );
    return node({
      id: `${attempt.id}/settlement/${index}`,
      label: stepWords(step.step, t),
      description: step.observed ? t('observed {0}', time(step.at)) : t('could not be observed'),
      tooltip: facts.join('\n'),
      icon: step.observed ? { id: 'check', tone: 'good' } : { id: 'question', tone: 'warning' },
    });
  });
  const unknown = settlement.unknown.map((code) =>
    node({
      id: `${attempt.id}/settlement/unknown/${code}`,
      label: t('Unknown: {0}', visible(code.replaceAll('_', ' '), 80)),
      icon: { id: 'question', tone: 'warning' },
    }),
  );
  const by = settlement.supervised;
  const supervised =
    by === null
      ? []
      : [
          node({
            id: `${attempt.id}/settlement/supervised`,
            label: t('Ended by a person, not by an observation'),
            description: t('{0} · {1}', visible(by.by, 80), time(by.at)),
            tooltip: [visibleLines(by.why), t('The engine said: {0}', visible(by.saw)), visible(by.waitingFor)].join(
              '\n',
            ),
            icon: { id: 'person', tone: 'warning' },
          }),
        ];
  return node({
    id: `${attempt.id}/settlement`,
    label: t('Settlement'),
    description: settlement.confirmed
      ? t('confirmed · {0}', triggerWords(settlement.trigger, t))
      : done
        ? t('not confirmed · {0}', triggerWords(settlement.trigger, t))
        : t('under way · {0}', triggerWords(settlement.trigger, t)),
    tooltip: settlement.confirmed
      ? t('The container was seen stopped, and then seen gone.')
      : t('The end of the container has not been observed.'),
    icon: settlement.confirmed
      ? { id: 'verified', tone: 'good' }
      : done
        ? { id: 'unverified', tone: 'warning' }
        : spinning,
    children: [...rows, ...supervised, ...unknown],
  });
}

function limitsNode(attempt: AttemptView, { t }: TreeWords): TreeNode | null {
  if (attempt.limits.length === 0) return null;
  const off = attempt.limits.filter((limit) => !limit.inForce).length;
  return node({
    id: `${attempt.id}/limits`,
    label: t('Limits'),
    description: off === 0 ? t('all {0} read back in force', attempt.limits.length) : t('{0} not in force', off),
    icon: off === 0 ? { id: 'lock', tone: 'plain' } : { id: 'unlock', tone: 'bad' },
    children: attempt.limits.map((limit) =>
      node({
        id: `${attempt.id}/limits/${limit.name}`,
        label: visible(limit.name, 80),
        description: visible(limit.wanted, 120),
        tooltip: [
          t('Wanted: {0}', visible(limit.wanted)),
          t('Seen inside: {0}', limit.inside === null ? t('not readable') : visible(limit.inside)),
          t('Seen outside: {0}', limit.outside === null ? t('not readable') : visible(limit.outside)),
        ].join('\n'),
        icon: limit.inForce ? { id: 'check', tone: 'good' } : { id: 'error', tone: 'bad' },
      }),
    ),
  });
}

/** What the attempt took. What no receipt told stays unsaid. */
function usageNode({ id, metrics, engine }: AttemptView, { t, number }: TreeWords): TreeNode | null {
  if (metrics.requests === 0) return null;
  const seconds = (ms: number): string => t('{0} s', number(Math.round(ms / 100) / 10));
  const gibibytes = (bytes: number): string => t('{0} GiB', (bytes / 1024 ** 3).toFixed(1));
  const lowest = engine?.lowest ?? null;
  const during = engine?.during ?? [];
  const facts: [string, string, string | null][] = [
    ['failed', t('Requests without a usable turn'), metrics.failed === 0 ? null : number(metrics.failed)],
    ['in', t('Tokens in'), metrics.promptTokens === null ? null : number(metrics.promptTokens)],
    ['cached', t('of them from the cache'), metrics.cachedTokens === null ? null : number(metrics.cachedTokens)],
    ['out', t('Tokens out'), metrics.outputTokens === null ? null : number(metrics.outputTokens)],
    ['inference', t('Waited for the model'), seconds(metrics.inferenceMs)],
    ['load', t('of it loading'), metrics.loadMs === null ? null : seconds(metrics.loadMs)],
    ['wall', t('From start to settlement'), metrics.wallMs === null ? null : seconds(metrics.wallMs)],
    ['device', t('Device'), engine?.device ?? null],
    ['free', t('Least free memory'), lowest === null ? null : gibibytes(lowest.hostFree)],
    [
      'changes',
      t('Changes at the engine meanwhile'),
      during.length === 0
        ? null
        : during.map((change) => `${change.name} ${change.what.replaceAll('_', ' ')}`).join(', '),
    ],
  ];
  return node({
    id: `${id}/usage`,
    label: t('Usage'),
    description: [
      metrics.requests === 1 ? t('1 request') : t('{0} requests', number(metrics.requests)),
      metrics.outputTokens === null ? undefined : t('{0} tokens out', number(metrics.outputTokens)),
    ]
      .filter((part) => part !== undefined)
      .join(' · '),
    icon: { id: 'graph', tone: 'plain' },
    children: facts.flatMap(([key, label, value]) =>
      value === null ? [] : [node({ id: `${id}/usage/${key}`, label, description: visible(value) })],
    ),
  });
}

/** What streams right now: shown while it lasts, kept nowhere. */
function liveNode(live: LiveInference, { t, number }: TreeWords): TreeNode {
  const what = ((): string => {
    switch (live.state) {
      case 'loading':
        return t('the model is being loaded');
      case 'thinking':
        return t('thinking');
      case 'answering':
        return t('answering');
      default:
        return unreachable(live.state, 'state of a request');
    }
  })();
  return node({
    id: `${live.attempt}/live`,
    label: t('Request {0}: {1}', live.n, what),
    description: t('{0} s · {1} characters', Math.round(live.sinceMs / 1000), number(live.chars)),
    tooltip: visibleLines(live.text, 2000),
    spoken: t('Request {0}: {1}', live.n, what),
    icon: spinning,
  });
}

function attemptIcon(attempt: AttemptView): Icon {
  if (attempt.phase === 'cancellation_pending') return { id: 'warning', tone: 'warning' };
  if (attempt.phase !== 'settled') return spinning;
  switch (attempt.outcome?.kind) {
    case 'candidate':
      return { id: 'git-pull-request', tone: 'plain' };
    case 'incident':
    case 'lost':
      return { id: 'error', tone: 'bad' };
    case 'no_change':
    case 'cancelled':
      return { id: 'circle-slash', tone: 'plain' };
    case 'model_fault':
    case 'limit':
    case 'resource':
    case 'transport':
    case 'infrastructure':
    case 'interrupted':
    case 'incomplete':
      return { id: 'warning', tone: 'warning' };
    case undefined:
      return { id: 'question', tone: 'warning' };
    default:
      return unreachable(attempt.outcome as never, 'outcome');
  }
}

function attemptNode(session: SessionView, attempt: AttemptView, last: boolean, words: TreeWords): TreeNode {
  const { t, time } = words;
  const outcome = attempt.outcome;
  const rows: (TreeNode | null)[] = [];
  if (attempt.pending !== null) {
    rows.push(
      node({
        id: `${attempt.id}/pending`,
        label: t('Stop not confirmed since {0}', time(attempt.pending.since)),
        description: visible(attempt.pending.waitingFor, 160),
        tooltip: t(
          'Escrow does not know whether this sandbox still runs. What would resolve it: {0}',
          visibleLines(attempt.pending.waitingFor),
        ),
        icon: { id: 'warning', tone: 'warning' },
        context: contextWords('pending'),
        target: { kind: 'pending', session: session.id, attempt: attempt.id, since: attempt.pending.since },
      }),
    );
  }
  const live = session.live?.attempt === attempt.id ? session.live : null;
  if (live !== null) rows.push(liveNode(live, words));
  if (outcome !== null && outcome.kind !== 'candidate') {
    rows.push(
      node({
        id: `${attempt.id}/outcome`,
        label: visible(outcome.reason.replaceAll('_', ' '), 120),
        description: visible(outcome.detail, 160),
        tooltip: `${t('While {0}', phaseWords(outcome.phase, t))}\n${visibleLines(outcome.detail)}`,
        icon: { id: 'info', tone: 'plain' },
      }),
    );
  }
  if (attempt.collection !== null && attempt.collection.state !== 'complete') {
    rows.push(
      node({
        id: `${attempt.id}/collection`,
        label: attempt.collection.state === 'partial' ? t('Bytes partly collected') : t('No bytes collected'),
        description: visible(attempt.collection.reason ?? '', 160),
        icon: { id: 'warning', tone: 'warning' },
      }),
    );
  }
  if (attempt.feedback !== null) {
    rows.push(
      node({
        id: `${attempt.id}/feedback`,
        label: t('Correction'),
        description: visible(attempt.feedback, 160),
        tooltip: visibleLines(attempt.feedback),
        icon: { id: 'comment', tone: 'plain' },
      }),
    );
  }
  for (const candidate of session.candidates) {
    if (candidate.attempt === attempt.id) rows.push(candidateNode(session, candidate, words));
  }
  rows.push(
    activityNode(attempt, words),
    settlementNode(attempt, words),
    limitsNode(attempt, words),
    usageNode(attempt, words),
  );

  const open = attempt.phase !== 'settled';
  return node({
    id: attempt.id,
    label: t('Attempt {0}', attempt.number),
    description: open
      ? attempt.phase === 'running'
        ? t('running · {0} requests', attempt.requests)
        : phaseWords(attempt.phase, t)
      : outcome === null
        ? t('outcome unknown')
        : outcomeWords(outcome.kind, t),
    tooltip: [
      t('Reserved {0}', time(attempt.reservedAt)),
      ...(attempt.container === null
        ? []
        : [t('Container {0}: {1}', visible(attempt.container.name), attempt.container.state)]),
    ].join('\n'),
    icon: attemptIcon(attempt),
    context: contextWords('attempt'),
    target: { kind: 'attempt', session: session.id, attempt: attempt.id },
    children: rows.filter((row) => row !== null),
    collapsible: last ? 'expanded' : 'collapsed',
  });
}

function workspaceNode(session: SessionView, listing: WorkspaceListing | undefined, { t, time }: TreeWords): TreeNode {
  const id = `${session.id}/workspace`;
  if (listing === undefined) {
    return node({
      id,
      label: t('Workspace'),
      icon: { id: 'folder', tone: 'plain' },
      collapsible: 'collapsed',
      children: 'load',
      target: { kind: 'session', session: session.id },
      tooltip: t('The files of the sandbox, which are not part of your folder.'),
    });
  }
  const source = listing.source;
  return node({
    id,
    label: t('Workspace'),
    description:
      source.kind === 'live'
        ? t('live, seen {0}', time(source.observedAt))
        : source.kind === 'candidate'
          ? t('as collected')
          : t('snapshot'),
    tooltip: t('The files of the sandbox, which are not part of your folder.'),
    icon: { id: source.kind === 'live' ? 'vm-active' : 'folder', tone: 'plain' },
    live: source.kind === 'live',
    target: { kind: 'session', session: session.id },
    collapsible: 'collapsed',
    children: listing.files.map((file) =>
      node({
        id: `${id}/${file.path}`,
        label: visible(file.path),
        description: [file.changed && t('changed'), file.access === 'readable' ? false : accessWords(file.access, t)]
          .filter((word) => word !== false)
          .join(' · '),
        tooltip: `${visible(file.path)}\n${shortDigest(file.sha256)}`,
        icon: {
          id: file.access === 'writable' ? 'edit' : file.access === 'protected' ? 'lock' : 'file',
          tone: file.changed ? 'warning' : 'plain',
        },
        context: contextWords('workspace-file'),
        target: { kind: 'workspace-file', session: session.id, path: file.path },
        command: commands.openWorkspaceFile,
      }),
    ),
  });
}

function accessWords(access: 'writable' | 'readable' | 'hidden' | 'protected', t: Localize): string {
  switch (access) {
    case 'writable':
      return t('writable');
    case 'readable':
      return t('readable');
    case 'hidden':
      return t('not shown to the model');
    case 'protected':
      return t('protected');
    default:
      return unreachable(access, 'access');
  }
}

function bindingNode(session: SessionView, { t, number }: TreeWords): TreeNode {
  const { binding } = session;
  const row = (key: string, label: string, value: string): TreeNode =>
    node({ id: `${session.id}/binding/${key}`, label, description: visible(value), tooltip: visible(value, 500) });
  return node({
    id: `${session.id}/binding`,
    label: t('Binding'),
    description: visible(bindingWords(binding, t)),
    tooltip: t('Exactly who works and where. A change of any part is another binding.'),
    icon: { id: 'key', tone: 'plain' },
    children: [
      row('engine', t('Engine'), `${binding.engine.kind} ${binding.engine.version} · ${binding.engine.host}`),
      row('model', t('Model'), binding.model.tag),
      row('digest', t('Model digest'), binding.model.digest ?? t('none: a script speaks')),
      row('context', t('Context'), t('{0} tokens', number(binding.options.numCtx))),
      row('options', t('Options'), `temperature ${binding.options.temperature}, seed ${binding.options.seed}`),
      row('prompt', t('Prompt and tools'), shortDigest(binding.promptDigest)),
      row('image', t('Image'), `${binding.image.reference} · ${shortDigest(binding.image.digest)}`),
      row('executor', t('Executor'), shortDigest(binding.executorDigest)),
      row('profile', t('Profile'), `${binding.profile.name} · ${shortDigest(binding.profile.digest)}`),
      row('qualification', t('Qualification'), binding.qualification),
      ...(binding.model.unproven.length === 0
        ? []
        : [row('unproven', t('Not proved by the engine'), binding.model.unproven.join(', ').replaceAll('_', ' '))]),
    ],
  });
}

function controlNode(session: SessionView, mine: boolean, { t, time }: TreeWords): TreeNode {
  const controller = session.controller;
  const base = { id: `${session.id}/control`, label: t('Control') };
  if (controller === null) {
    return node({ ...base, description: t('nobody'), icon: { id: 'person', tone: 'muted' } });
  }
  const seen = t('last seen {0}', time(controller.lastSeenAt));
  return node({
    ...base,
    description: mine
      ? t('this window')
      : controller.connected
        ? visible(controller.name)
        : t('{0}, not connected, {1}', visible(controller.name), seen),
    tooltip: mine ? t('This window may cancel and start attempts.') : t('This window observes. {0}', seen),
    icon: { id: mine ? 'account' : 'eye', tone: 'plain' },
    live: mine || controller.connected,
  });
}

/** What needs a person's eye comes first: it decides the row's icon and words. */
function sessionLook(summary: SessionSummary, t: Localize): { readonly icon: Icon; readonly words: string } {
  if (summary.phase === 'cancellation_pending') {
    return { icon: { id: 'warning', tone: 'warning' }, words: t('stop not confirmed') };
  }
  switch (summary.state) {
    case 'queued':
      return { icon: { id: 'watch', tone: 'plain' }, words: t('waiting for the sandbox') };
    case 'parked':
      return { icon: { id: 'debug-pause', tone: 'plain' }, words: t('parked: its window closed while it waited') };
    case 'running':
      return { icon: spinning, words: summary.phase === null ? t('running') : phaseWords(summary.phase, t) };
    case 'settling':
      return { icon: spinning, words: summary.phase === null ? t('settling') : phaseWords(summary.phase, t) };
    case 'waiting':
    case 'closed':
      break;
    default:
      return unreachable(summary.state, 'session state');
  }
  if (summary.decision === 'accept') return { icon: { id: 'pass-filled', tone: 'good' }, words: t('accepted') };
  if (summary.decision === 'reject') return { icon: { id: 'circle-slash', tone: 'plain' }, words: t('rejected') };
  const diagnostic = summary.outcome !== null && summary.outcome !== 'candidate';
  if (summary.candidate !== null && !diagnostic) {
    switch (summary.verdict) {
      case 'passed':
        return { icon: { id: 'git-pull-request', tone: 'good' }, words: t('to review') };
      case 'failed':
        return { icon: { id: 'error', tone: 'bad' }, words: t('checks failed') };
      case 'flaky':
        return { icon: { id: 'warning', tone: 'warning' }, words: t('flaky') };
      case 'incomplete':
        return { icon: { id: 'warning', tone: 'warning' }, words: t('checks incomplete') };
      case 'unverified':
      case null:
        return { icon: { id: 'git-pull-request', tone: 'plain' }, words: t('not verified') };
      default:
        return unreachable(summary.verdict, 'verdict');
    }
  }
  if (summary.outcome !== null) {
    const quiet = summary.outcome === 'cancelled' || summary.outcome === 'no_change';
    return {
      icon: quiet ? { id: 'circle-slash', tone: 'plain' } : { id: 'warning', tone: 'warning' },
      words: outcomeWords(summary.outcome, t),
    };
  }
  return {
    icon: { id: 'circle-outline', tone: 'plain' },
    words: summary.state === 'closed' ? t('closed') : t('ready'),
  };
}

function sessionNode(
  summary: SessionSummary,
  view: SessionView | undefined,
  state: WindowState,
  newest: boolean,
  words: TreeWords,
): TreeNode {
  const { t, time } = words;
  const look = sessionLook(summary, t);
  const mine = state.controls.has(summary.id);
  const active = summary.state === 'running' || summary.state === 'settling' || summary.state === 'queued';
  const model =
    view === undefined
      ? summary.synthetic
        ? t('{0} · synthetic', scriptName(summary.model))
        : t('{0} · qualification: none', summary.model)
      : bindingWords(view.binding, t);
  const position =
    view?.state === 'queued' && view.queuePosition !== null ? t('{0} ahead', view.queuePosition) : undefined;
  const another = view !== undefined && !active && view.budget.used < view.budget.attempts && view.state !== 'closed';
  return node({
    id: summary.id,
    label: visible(summary.title),
    description: [look.words, position, visible(model)].filter((part) => part !== undefined).join(' · '),
    tooltip: [
      visible(summary.title),
      t('Created {0}, changed {1}', time(summary.createdAt), time(summary.updatedAt)),
      visible(summary.root, 500),
      ...(view === undefined ? [] : [t('{0} of {1} attempts used', view.budget.used, view.budget.attempts)]),
    ].join('\n'),
    icon: look.icon,
    live: active,
    context: contextWords(
      'session',
      active && mine && 'cancellable',
      mine ? 'controlled' : view?.controller === null ? 'free' : 'observed',
      another && mine && 'another',
      view !== undefined && !active && view.budget.used >= view.budget.attempts && view.state !== 'closed' && 'spent',
      !active && mine && summary.state !== 'closed' && 'closable',
    ),
    target: { kind: 'session', session: summary.id },
    collapsible: active || newest ? 'expanded' : 'collapsed',
    children:
      view === undefined
        ? 'load'
        : [
            ...view.attempts.map((attempt, index) =>
              attemptNode(view, attempt, index === view.attempts.length - 1, words),
            ),
            workspaceNode(view, state.workspaces.get(view.id)?.value, words),
            controlNode(view, mine, words),
            bindingNode(view, words),
            node({
              id: `${view.id}/contract`,
              label: t('Contract'),
              description: visible(relativeTo(view.root, view.contractPath)),
              tooltip: t('Frozen as {0}. The file may have changed since.', shortDigest(view.contractDigest)),
              icon: { id: 'file-code', tone: 'plain' },
              target: { kind: 'contract', root: view.root, path: view.contractPath },
              command: commands.openContract,
            }),
          ],
  });
}

/** A path as it lies below a root; unchanged when it does not. */
function relativeTo(root: string, file: string): string {
  return file.startsWith(root) ? file.slice(root.length).replace(/^[\\/]+/, '') : file;
}

function operationNode(operation: Operation, { t, time }: TreeWords): TreeNode {
  return node({
    id: `operation/${operation.id}`,
    label: visible(operation.label),
    description: visible(operation.detail),
    tooltip: t('Asked for {0}', time(operation.startedAt)),
    icon: spinning,
    context: contextWords('operation'),
    target: { kind: 'operation', id: operation.id },
  });
}

/** A session as a row of the list, from its full view: newer than the list's own row. */
export function summaryOf(view: SessionView): SessionSummary {
  const attempt = view.attempts.at(-1);
  const candidate = view.candidates.at(-1);
  return {
    id: view.id,
    contractDigest: view.contractDigest,
    title: view.title,
    root: view.root,
    model: view.binding.model.tag,
    synthetic: view.binding.synthetic,
    state: view.state,
    phase: attempt?.phase ?? null,
    outcome: attempt?.outcome?.kind ?? null,
    candidate: candidate?.digest ?? null,
    verdict: candidate?.verdict ?? null,
    decision: candidate?.decision?.kind ?? null,
    createdAt: view.createdAt,
    updatedAt: view.updatedAt,
  };
}

/** Whether a session belongs to one of the window's folders: its root is one, holds one, or lies in one. */
export function belongsTo(root: string, folders: readonly string[]): boolean {
  const inside = (inner: string, outer: string): boolean =>
    inner === outer ||
    inner.startsWith(outer.endsWith('/') || outer.endsWith('\\') ? outer : `${outer}/`) ||
    inner.startsWith(`${outer}\\`);
  return folders.some((folder) => inside(root, folder) || inside(folder, root));
}

/** The rows of the Sessions view. Sessions of other folders are kept apart, at the end. */
export function sessionTree(state: WindowState, folders: readonly string[], words: TreeWords): readonly TreeNode[] {
  const { t } = words;
  const known = new Map<SessionId, { summary: SessionSummary; view: SessionView | undefined }>();
  for (const summary of state.summaries?.value ?? []) known.set(summary.id, { summary, view: undefined });
  for (const [id, { value: view }] of state.sessions) known.set(id, { summary: summaryOf(view), view });
  const sorted = [...known.values()].toSorted((a, b) => b.summary.createdAt - a.summary.createdAt);

  const here: TreeNode[] = [];
  const elsewhere: TreeNode[] = [];
  for (const { summary, view } of sorted) {
    const ours = belongsTo(summary.root, folders);
    const newest = ours && here.length === 0;
    (ours ? here : elsewhere).push(sessionNode(summary, view, state, newest, words));
  }
  const rows = [...state.operations.map((operation) => operationNode(operation, words)), ...here];
  if (elsewhere.length > 0) {
    rows.push(
      node({
        id: 'elsewhere',
        label: t('Other folders'),
        description: String(elsewhere.length),
        icon: { id: 'folder-library', tone: 'plain' },
        children: elsewhere,
      }),
    );
  }
  return isCurrent(state) ? rows : stale(rows, t);
}
