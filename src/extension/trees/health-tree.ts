import { unreachable } from '../../protocol/primitives.ts';
import type { Health } from '../../protocol/status.ts';
import { commands, settings } from '../ids.ts';
import { visible, visibleLines } from '../visible-text.ts';
import { isCurrent, type WindowState } from '../window-state.ts';
import { healthWords, type HealthPart } from './health-words.ts';
import { contextWords, node, stale, type Icon, type Localize, type TreeNode, type TreeWords } from './tree-node.ts';
import { pendingWords, shortDigest } from './words.ts';

function look(state: Health['state'], t: Localize): { readonly icon: Icon; readonly words: string } {
  switch (state) {
    case 'ok':
      return { icon: { id: 'pass', tone: 'good' }, words: '' };
    case 'degraded':
      return { icon: { id: 'warning', tone: 'warning' }, words: t('degraded') };
    case 'unavailable':
      return { icon: { id: 'error', tone: 'bad' }, words: t('unavailable') };
    case 'unknown':
      return { icon: { id: 'question', tone: 'plain' }, words: t('not known') };
    default:
      return unreachable(state, 'health');
  }
}

function healthNode(
  id: HealthPart,
  label: string,
  health: Health,
  extra: readonly string[],
  words: TreeWords,
  /** The setting that names what this row is about, where there is one. */
  setting?: string,
): TreeNode {
  const { t, time } = words;
  // What only the engine could tell is not known while it does not answer.
  const asked = health.code === 'EngineUnavailable' ? 'unknown' : health.state;
  const { icon, words: state } = look(asked, t);
  const { says, next: step } = healthWords(id, health, words);
  const next =
    step === null
      ? []
      : [
          node({
            id: `health/${id}/next`,
            label: visible(step.label, 400),
            tooltip: visibleLines(health.next),
            icon: { id: 'arrow-right', tone: 'plain' },
            command: step.command,
          }),
        ];
  // What is wrong comes first: a narrow view cuts the rest. The icon says how bad it is.
  const facts = (health.state === 'ok' || says === '' ? [state, ...extra] : [says, ...extra])
    .filter((fact) => fact !== '')
    .map((fact) => visible(fact, 160));
  const spoken = state === '' ? t('ok') : state;
  return node({
    // Another row once there is something to do: VS Code keeps a row without children closed when they come.
    id: next.length === 0 ? `health/${id}` : `health/${id}/wrong`,
    label,
    description: facts.join(' · '),
    spoken: [label, spoken, ...facts.filter((fact) => fact !== spoken)].join(', '),
    tooltip: [visibleLines(health.detail), t('Observed {0}', time(health.observedAt))].join('\n'),
    icon,
    context: contextWords(
      'health',
      id === 'image' && asked !== 'unknown' && 'image',
      id === 'image' && health.state !== 'ok' && asked !== 'unknown' && 'prepare',
      setting !== undefined && health.state !== 'ok' && 'setting',
    ),
    command: id === 'image' && asked !== 'unknown' ? commands.listImages : null,
    target: setting === undefined ? { kind: 'none' } : { kind: 'setting', name: setting },
    children: next,
    collapsible: next.length === 0 ? 'no' : 'expanded',
  });
}

/** The rows of the Health view: the Kernel itself and all that it depends on, each with the time it was looked at. */
export function healthTree(state: WindowState, words: TreeWords): readonly TreeNode[] {
  const { t, time, number } = words;
  const status = state.status?.value;
  if (status === undefined) return [];
  const rows: TreeNode[] = [
    node({
      id: 'health/kernel',
      label: t('Kernel'),
      description: [
        status.version,
        status.draining ? t('stopping') : t('running since {0}', time(status.startedAt)),
        ...(state.connection.kind === 'connected' && state.connection.updatePending ? [t('update pending')] : []),
        status.clients.length === 1 ? t('1 client') : t('{0} clients', status.clients.length),
      ].join(' · '),
      tooltip: [
        t('Process {0}, protocol {1}, epoch {2}', status.pid, status.protocol, status.epoch),
        visible(status.home, 500),
        ...status.clients.map((client) => visible(`${client.kind}: ${client.name}`)),
      ].join('\n'),
      icon: status.draining ? { id: 'warning', tone: 'warning' } : { id: 'pass', tone: 'good' },
      context: contextWords('kernel'),
      live: true,
    }),
  ];
  if (!status.executionEnabled) {
    rows.push(
      node({
        id: 'health/execution',
        label: t('Execution is switched off'),
        description: t('sessions, evidence and review stay readable'),
        icon: { id: 'circle-slash', tone: 'warning' },
      }),
    );
  }
  rows.push(
    healthNode(
      'engine',
      t('Container engine'),
      status.engine,
      [status.engine.name, status.engine.version].filter((part) => part !== null).map((part) => visible(part)),
      words,
      settings.engineHost,
    ),
    healthNode(
      'image',
      t('Sandbox image'),
      status.image,
      status.image.digest === null ? [] : [shortDigest(status.image.digest)],
      words,
    ),
    healthNode(
      'inference',
      t('Inference'),
      status.inference,
      [status.inference.version, status.inference.host].filter((part) => part !== null).map((part) => visible(part)),
      words,
      settings.ollamaHost,
    ),
    healthNode(
      'storage',
      t('Storage'),
      status.storage,
      [
        status.storage.events === 1 ? t('1 event') : t('{0} events', number(status.storage.events)),
        t('{0} MiB of artefacts', (status.storage.artefactBytes / 1024 ** 2).toFixed(1)),
      ],
      words,
    ),
  );
  const work = [
    ...status.active.map((item) => ({ ...item, active: true })),
    ...status.queue.map((item) => ({ ...item, active: false })),
  ];
  rows.push(
    node({
      id: work.length === 0 ? 'health/queue' : 'health/queue/busy',
      label: t('Sandbox'),
      description:
        work.length === 0
          ? t('free')
          : status.active.length === 0
            ? t('{0} waiting', status.queue.length)
            : status.queue.length === 0
              ? t('in use')
              : t('in use, {0} waiting', status.queue.length),
      icon: { id: 'layers', tone: 'plain' },
      live: true,
      collapsible: work.length === 0 ? 'no' : 'expanded',
      children: work.map((item) =>
        node({
          id: `health/queue/${item.what}/${item.id}`,
          label: visible(item.label),
          description: item.active ? t('now') : t('waiting'),
          icon: item.active ? { id: 'loading~spin', tone: 'plain' } : { id: 'watch', tone: 'plain' },
        }),
      ),
    }),
  );
  for (const pending of status.pending) {
    rows.push(
      node({
        id: `health/pending/${pending.attempt}`,
        label: t('Stop not confirmed'),
        description: visible(pendingWords(pending.waitingFor, t)),
        tooltip: visibleLines(pending.waitingFor),
        icon: { id: 'warning', tone: 'warning' },
        target: { kind: 'session', session: pending.session },
      }),
    );
  }
  if (status.strays.length > 0) {
    rows.push(
      node({
        id: 'health/strays',
        label: t('Containers the record does not know'),
        description: String(status.strays.length),
        tooltip: t(
          'They carry the label of Escrow. What was written in them is read out and kept; then they are removed.',
        ),
        icon: { id: 'warning', tone: 'warning' },
        children: status.strays.map((stray) =>
          node({
            id: `health/strays/${stray.engineId}`,
            label: visible(stray.name),
            description: shortDigest(stray.engineId),
          }),
        ),
      }),
    );
  }
  return isCurrent(state) && !state.unrefreshed.has('status') ? rows : stale(rows, t);
}
