import type { ModelView } from '../../protocol/status.ts';
import { visible, visibleLines } from '../visible-text.ts';
import { isCurrent, type WindowState } from '../window-state.ts';
import { contextWords, node, stale, type Localize, type TreeNode, type TreeWords } from './tree-node.ts';
import { scriptName } from './words.ts';

function gibibytes(bytes: number): string {
  return `${(bytes / 1024 ** 3).toFixed(1)} GiB`;
}

/** Whether the weights fit what is free on this machine now; undefined where it cannot be said. */
export function fitWords(model: ModelView, t: Localize): string | undefined {
  switch (model.fit?.state) {
    case 'fits_gpu':
      return t('fits the GPU');
    case 'fits_host':
      return model.fit.gpuFree === null ? t('fits this machine') : t('fits, partly on the CPU');
    case 'too_large':
      return t('larger than the free memory');
    default:
      return undefined;
  }
}

/** Why no session can be started with a model, in words; the code where there are none. */
export function refusedWords(code: string, t: Localize): string {
  switch (code) {
    case 'cloud':
      return t('its prompts would leave this machine');
    case 'no_tools':
      return t('it cannot call tools');
    default:
      return code.replaceAll('_', ' ');
  }
}

function modelNode(model: ModelView, { t, number }: TreeWords): TreeNode {
  const synthetic = model.engine === 'rehearsal';
  // A script has neither size nor weights.
  const facts = synthetic
    ? []
    : [
        model.parameterSize ?? undefined,
        model.quantisation ?? undefined,
        model.sizeBytes === null ? undefined : gibibytes(model.sizeBytes),
        fitWords(model, t),
        model.loaded ? t('loaded') : undefined,
      ].filter((fact) => fact !== undefined);
  const words = model.refused === null ? (synthetic ? t('synthetic') : t('qualification: none')) : t('refused');
  return node({
    id: `model/${model.engine}/${model.tag}`,
    label: visible(synthetic ? scriptName(model.tag) : model.tag),
    description: [words, ...facts.map((fact) => visible(fact))].join(' · '),
    tooltip: [
      visible(model.tag, 500),
      visibleLines(model.description),
      ...(model.refused === null ? [] : [visibleLines(refusedWords(model.refused, t))]),
      ...(model.digest === null ? [] : [visible(model.digest, 100)]),
      ...(model.contextAdvertised === null || synthetic
        ? []
        : [t('Advertises {0} tokens of context', number(model.contextAdvertised))]),
      ...(synthetic || model.capabilities.length === 0 ? [] : [t('Can: {0}', visible(model.capabilities.join(', ')))]),
      ...(model.unproven.length === 0 ? [] : [t('Not proved: {0}', model.unproven.join(', ').replaceAll('_', ' '))]),
    ].join('\n'),
    icon:
      model.refused === null
        ? { id: synthetic ? 'note' : 'circuit-board', tone: 'plain' }
        : { id: 'circle-slash', tone: 'warning' },
    context: contextWords('model'),
  });
}

/** The rows of the Models view: local models first, then scripts, then what is refused and why. */
export function modelsTree(state: WindowState, words: TreeWords): readonly TreeNode[] {
  const { t } = words;
  if (state.models === null) return [];
  const { models, silent } = state.models.value;
  const group = (id: string, label: string, icon: string, members: readonly ModelView[]): TreeNode[] =>
    members.length === 0
      ? []
      : [
          node({
            id: `models/${id}`,
            label,
            description: String(members.length),
            icon: { id: icon, tone: 'plain' },
            collapsible: 'expanded',
            children: members.map((model) => modelNode(model, words)),
          }),
        ];
  const usable = models.filter((model) => model.refused === null);
  const rows = [
    ...group(
      'ollama',
      t('Ollama'),
      'server',
      usable.filter((model) => model.engine === 'ollama'),
    ),
    ...group(
      'chat-completions',
      t('Chat completions on this machine'),
      'server',
      usable.filter((model) => model.engine === 'chat-completions'),
    ),
    ...group(
      'rehearsal',
      t('Rehearsal scripts'),
      'notebook',
      usable.filter((model) => model.engine === 'rehearsal'),
    ),
    ...group(
      'refused',
      t('Refused'),
      'circle-slash',
      models.filter((model) => model.refused !== null),
    ),
  ];
  for (const engine of silent) {
    rows.push(
      node({
        id: `silent/${engine.engine}/${engine.host}`,
        label:
          engine.code === 'InferenceTooOld'
            ? t('{0} is too old', engine.engine === 'ollama' ? 'Ollama' : visible(engine.host))
            : t('{0} does not answer', engine.engine === 'ollama' ? 'Ollama' : visible(engine.host)),
        description:
          engine.code === 'InferenceTooOld' ? t('update it') : t('start it, or name its host in the settings'),
        tooltip: [visible(engine.host), visible(engine.code), visibleLines(engine.next)].join('\n'),
        icon: { id: 'warning', tone: 'warning' },
      }),
    );
  }
  return isCurrent(state) && !state.unrefreshed.has('models') ? rows : stale(rows, t);
}
