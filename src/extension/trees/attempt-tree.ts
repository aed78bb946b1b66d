import { unreachable } from '../../protocol/primitives.ts';
import type { ActivityItem, AttemptView, LiveInference } from '../../protocol/attempt.ts';
import type { SessionView } from '../../protocol/views.ts';
import { commands } from '../ids.ts';
import { visible, visibleLines } from '../visible-text.ts';
import { candidateNode } from './candidate-tree.ts';
import { limitValueWords, limitWords } from './limit-words.ts';
import { contextWords, node, spinning, type Icon, type TreeNode, type TreeWords } from './tree-node.ts';
import {
  factWords,
  outcomeReasonWords,
  outcomeWords,
  pendingWords,
  phaseWords,
  settlementReasonWords,
  stepReasonWords,
  stepWords,
  triggerWords,
  unknownOf,
} from './words.ts';

/** At most this many rows of activity are shown; the rest is in the evidence. */
const activityShown = 200;

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

/** Calls with what came of them as one item each: what was asked and what was answered are one thing that happened. */
function foldActivity(items: readonly ActivityItem[]): readonly ActivityItem[] {
  const folded: ActivityItem[] = [];
  for (const item of items) {
    const before = folded.at(-1);
    const answers = item.kind === 'result' || item.kind === 'denied';
    if (answers && before?.kind === 'tool' && before.title.startsWith(item.title)) {
      const text = [before.text, item.text].filter((part) => part !== '').join('\n\n');
      folded[folded.length - 1] = { ...item, n: before.n, at: before.at, title: before.title, text };
    } else folded.push(item);
  }
  return folded;
}

function activityNode(attempt: AttemptView, { t, time }: TreeWords): TreeNode | null {
  if (attempt.activity.length === 0) return null;
  const items = foldActivity(attempt.activity);
  const shown = items.slice(-activityShown);
  const left = items.length - shown.length;
  return node({
    id: `${attempt.id}/activity`,
    label: t('Activity'),
    description: String(items.length),
    icon: { id: 'list-unordered', tone: 'plain' },
    children: [
      ...(left === 0
        ? []
        : [node({ id: `${attempt.id}/activity/left`, label: t('{0} earlier ones not shown', left) })]),
      ...shown.map((item) => {
        const state = item.kind === 'denied' ? t('denied') : item.ok === false ? t('failed') : '';
        return node({
          id: `${attempt.id}/activity/${item.n}`,
          // Every path in the sandbox begins so.
          label: visible(item.title.replaceAll('/workspace/', ''), 120),
          description: visible(item.text, 120),
          tooltip: `${time(item.at)} ${visible(item.title)}\n${visibleLines(item.text, 2000)}`,
          spoken: [visible(item.title, 120), state, visible(item.text, 120)].filter((part) => part !== '').join(', '),
          icon: activityIcon(item),
          context: contextWords('text'),
          target: { kind: 'text', title: item.title, text: item.text },
          command: item.text === '' ? null : commands.showText,
        });
      }),
    ],
  });
}

function settlementNode(attempt: AttemptView, { t, time }: TreeWords): TreeNode | null {
  const settlement = attempt.settlement;
  if (settlement === null) return null;
  const done = settlement.settledAt !== null;
  const rows = settlement.steps.map((step, index) => {
    const facts = Object.entries(step.facts).map(
      ([name, value]) =>
        `${visible(factWords(name, t), 40)}: ${value === null ? t('not told') : visible(String(value).replaceAll('_', ' '), 120)}`,
    );
    const why = stepReasonWords(step, t);
    return node({
      id: `${attempt.id}/settlement/${index}`,
      label: stepWords(step.step, t),
      description: step.observed
        ? t('observed {0}', time(step.at))
        : why === undefined
          ? t('could not be observed')
          : t('could not be observed: {0}', visible(why, 120)),
      tooltip: facts.join('\n'),
      icon: step.observed ? { id: 'check', tone: 'good' } : { id: 'question', tone: 'warning' },
    });
  });
  const unknown = unknownOf(settlement, t).map((what) =>
    node({
      id: `${attempt.id}/settlement/unknown/${what}`,
      label: t('Not known: {0}', visible(what, 120)),
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
        label: limitWords(limit.name, t),
        description: limitValueWords(limit.name, limit.wanted, t),
        tooltip: [
          visible(limit.name, 80),
          t('Wanted: {0}', visible(limit.wanted)),
          t('Seen inside: {0}', limit.inside === null ? t('not readable') : visible(limit.inside)),
          t('Seen outside: {0}', limit.outside === null ? t('not readable') : visible(limit.outside)),
        ].join('\n'),
        spoken: [
          limitWords(limit.name, t),
          limitValueWords(limit.name, limit.wanted, t),
          limit.inForce ? t('in force') : t('not in force'),
        ].join(', '),
        icon: limit.inForce ? { id: 'check', tone: 'good' } : { id: 'error', tone: 'bad' },
      }),
    ),
  });
}

/** What the attempt took, and what changed at the engine meanwhile. What nobody told is `unavailable`. */
function usageNode({ id, metrics, engine }: AttemptView, { t, number }: TreeWords): TreeNode | null {
  if (metrics.requests === 0) return null;
  const seconds = (ms: number): string => t('{0} s', number(Math.round(ms / 100) / 10));
  const gibibytes = (bytes: number): string => t('{0} GiB', (bytes / 1024 ** 3).toFixed(1));
  const lowest = engine?.lowest ?? null;
  const during = engine?.during ?? [];
  const told = (value: number | null, words: (value: number) => string): string =>
    value === null ? t('unavailable') : words(value);
  const sinceLast = engine?.sinceLast ?? [];
  const facts: [string, string, string | null][] = [
    ['failed', t('Requests without a usable turn'), metrics.failed === 0 ? null : number(metrics.failed)],
    ['in', t('Tokens in'), told(metrics.promptTokens, number)],
    ['cached', t('of them from the cache'), told(metrics.cachedTokens, number)],
    ['out', t('Tokens out'), told(metrics.outputTokens, number)],
    ['inference', t('Waited for the model'), seconds(metrics.inferenceMs)],
    ['provider', t('of it the engine says it worked'), told(metrics.providerMs, seconds)],
    ['load', t('of it loading'), told(metrics.loadMs, seconds)],
    ['wall', t('From start to settlement'), metrics.wallMs === null ? null : seconds(metrics.wallMs)],
    ['device', t('Device'), engine?.device ?? t('unavailable')],
    ['driver', t('Driver'), engine?.driver ?? t('unavailable')],
    ['gpu', t('Share on the GPU'), told(engine?.gpuShare ?? null, (share) => `${Math.round(share * 100)} %`)],
    ['layers', t('Layers on the GPU'), told(engine?.layersOffloaded ?? null, number)],
    ['loaded', t('In memory: weights, cache and buffers'), told(engine?.loadedBytes ?? null, gibibytes)],
    ['cache', t('Size of the context cache'), told(engine?.kvBytes ?? null, gibibytes)],
    [
      'before',
      t('Changes at the engine since the last attempt'),
      sinceLast.length === 0
        ? null
        : sinceLast.map((change) => `${change.name} ${change.what.replaceAll('_', ' ')}`).join(', '),
    ],
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

function capitalised(text: string): string {
  return text.slice(0, 1).toLocaleUpperCase() + text.slice(1);
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

/** An attempt with its candidate, activity, settlement, limits and usage. */
export function attemptNode(session: SessionView, attempt: AttemptView, last: boolean, words: TreeWords): TreeNode {
  const { t, time } = words;
  const outcome = attempt.outcome;
  const rows: (TreeNode | null)[] = [];
  if (attempt.pending !== null) {
    rows.push(
      node({
        id: `${attempt.id}/pending`,
        label: t('Stop not confirmed since {0}', time(attempt.pending.since)),
        description: visible(pendingWords(attempt.pending.waitingFor, t), 160),
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
    const reason = outcomeReasonWords(outcome.reason, t);
    // Of bytes that are lost, what ended the work says more than where they were missing.
    const [label, more] =
      outcome.kind === 'lost' && outcome.detail !== ''
        ? [outcome.detail, reason]
        : [capitalised(reason), outcome.detail];
    rows.push(
      node({
        id: `${attempt.id}/outcome`,
        label: visible(label, 120),
        description: visible(more, 160),
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
        description: visible(settlementReasonWords(attempt.collection.reason ?? '', t), 160),
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
