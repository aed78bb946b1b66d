import { unreachable, type SessionId } from '../../protocol/primitives.ts';
import type { SessionSummary, SessionView } from '../../protocol/views.ts';
import { commands } from '../ids.ts';
import { visible } from '../visible-text.ts';
import { faultWords, inOneLine, type Fault } from '../fault-words.ts';
import {
  isCurrent,
  isSessionCurrent,
  type Operation,
  type WindowState,
  type WorkspaceListing,
} from '../window-state.ts';
import { attemptNode } from './attempt-tree.ts';
import {
  contextWords,
  node,
  notCurrent,
  spinning,
  stale,
  type Icon,
  type Localize,
  type TreeNode,
  type TreeWords,
} from './tree-node.ts';
import { bindingWords, outcomeWords, phaseWords, scriptName, shortDigest } from './words.ts';

/** Not `folder`, nor `file` below it: of a greyed row VS Code draws those as the file icon theme does, or not at all. */
const workspaceIcon = 'root-folder';

function workspaceNode(session: SessionView, listing: WorkspaceListing | undefined, { t, time }: TreeWords): TreeNode {
  const id = `${session.id}/workspace`;
  if (listing === undefined) {
    return node({
      id,
      label: t('Workspace'),
      icon: { id: workspaceIcon, tone: 'plain' },
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
    icon: { id: source.kind === 'live' ? 'vm-active' : workspaceIcon, tone: 'plain' },
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
          id: file.access === 'writable' ? 'edit' : file.access === 'protected' ? 'lock' : 'symbol-file',
          tone: file.changed ? 'warning' : 'plain',
        },
        context: contextWords('workspace-file'),
        target: { kind: 'workspace-file', session: session.id, path: file.path },
        command: commands.openWorkspaceFile,
      }),
    ),
  });
}

function workspaceRows(session: SessionView, state: WindowState, words: TreeWords): readonly TreeNode[] {
  const row = workspaceNode(session, state.workspaces.get(session.id)?.value, words);
  const refused = state.unrefreshed.get(`workspace:${session.id}`);
  return refused === undefined ? [row] : notCurrent(row, refusedWords(refused, words), words.t);
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
      row(
        'digest',
        t('Model digest'),
        binding.model.digest ?? (binding.synthetic ? t('none: a script speaks') : t('not told')),
      ),
      row('context', t('Context'), t('{0} tokens', number(binding.options.numCtx))),
      row(
        'options',
        t('Options'),
        `temperature ${binding.options.temperature}, seed ${binding.options.seed}, think ${String(binding.options.think)}, draft ${binding.options.draftNumPredict}`,
      ),
      row('witness', t('Vouched for by'), witnessWords(binding.model.witness, t)),
      row(
        'switches',
        t('Help for small models'),
        Object.entries(binding.switches)
          .map(([name, on]) => `${name} ${on ? t('on') : t('off')}`)
          .join(', '),
      ),
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

function witnessWords(witness: SessionView['binding']['model']['witness'], t: Localize): string {
  switch (witness) {
    case 'engine':
      return t('the engine alone');
    case 'host':
      return t('this host');
    case 'both':
      return t('engine and host');
    case 'none':
      return t('nobody');
    default:
      return unreachable(witness, 'witness');
  }
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
        return { icon: { id: 'error', tone: 'bad' }, words: t('verification failed') };
      case 'flaky':
        return { icon: { id: 'warning', tone: 'warning' }, words: t('flaky') };
      case 'incomplete':
        return { icon: { id: 'warning', tone: 'warning' }, words: t('verification incomplete') };
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
      [look.words, position, visible(model)].filter((part) => part !== undefined).join(' · '),
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
            ...workspaceRows(view, state, words),
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
    tooltip: [visible(operation.label), visible(operation.detail, 1000), t('Asked for {0}', time(operation.startedAt))]
      .filter((line) => line !== '')
      .join('\n'),
    icon: spinning,
    context: contextWords('operation', operation.cancellable && 'endable'),
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

/** A session's row, greyed with the reason where what it says is an earlier answer. */
function asCurrent(
  row: TreeNode,
  session: SessionView | SessionSummary,
  state: WindowState,
  words: TreeWords,
): readonly TreeNode[] {
  const { t } = words;
  if (!isSessionCurrent(state, session)) {
    const refused = state.unrefreshed.get(session.id);
    const why =
      refused === undefined
        ? t('Nothing can be recorded now. This is the last that was.')
        : refusedWords(refused, words);
    return notCurrent(row, why, t);
  }
  // A row of the list alone is as old as the list.
  return !state.sessions.has(session.id) && state.unrefreshed.has('list') ? stale([row], t) : [row];
}

function refusedWords(refused: Fault, { t, home }: TreeWords): string {
  return visible(inOneLine(faultWords(refused, home, t)), 300);
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
    const row = sessionNode(summary, view, state, newest, words);
    (ours ? here : elsewhere).push(...(isCurrent(state) ? asCurrent(row, view ?? summary, state, words) : [row]));
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
