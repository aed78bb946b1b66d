import path from 'node:path';
import * as vscode from 'vscode';
import type { EngineKind } from '../../protocol/binding.ts';
import type { ModelView } from '../../protocol/status.ts';
import { windowFault } from '../fault-words.ts';
import { fitWords, refusedWords } from '../trees/models-tree.ts';
import { scriptName } from '../trees/words.ts';
import { visible, withoutIcons } from '../visible-text.ts';

export interface ChosenModel {
  readonly engine: EngineKind;
  /** A tag or an id of the engine. Rehearsal: a script's name, or an absolute path. */
  readonly model: string;
}

type Item = vscode.QuickPickItem &
  (
    | { readonly chosen: ChosenModel }
    | { readonly refused: ModelView }
    | { readonly browse: true }
    | { readonly kind: vscode.QuickPickItemKind.Separator }
  );

const text = (value: string): string => withoutIcons(visible(value));

/** The script beside a contract, when there is one. */
async function scriptBeside(contract: vscode.Uri): Promise<vscode.Uri | undefined> {
  const uri = vscode.Uri.joinPath(contract, '..', 'rehearsal.json');
  return vscode.workspace.fs.stat(uri).then(
    () => uri,
    () => undefined,
  );
}

function modelItem(model: ModelView): Item {
  const synthetic = model.engine === 'rehearsal';
  return {
    label: text(synthetic ? scriptName(model.tag) : model.tag),
    description: synthetic
      ? vscode.l10n.t('synthetic')
      : [
          vscode.l10n.t('qualification: none'),
          model.parameterSize,
          model.quantisation,
          fitWords(model, vscode.l10n.t) ?? null,
          model.loaded ? vscode.l10n.t('loaded') : null,
        ]
          .filter((fact) => fact !== null)
          .map(text)
          .join(' · '),
    detail: text(model.description),
    chosen: { engine: model.engine, model: model.tag },
  };
}

/** Who shall work: a local model, or a rehearsal script in which no model speaks. Undefined when the person left. */
export async function chooseModel(
  models: readonly ModelView[],
  contract: vscode.Uri,
): Promise<ChosenModel | undefined> {
  const usable = models.filter((model) => model.refused === null);
  const local = usable.filter((model) => model.engine !== 'rehearsal');
  const refused = models.filter((model) => model.refused !== null);
  const beside = await scriptBeside(contract);
  const scripts = usable.filter((model) => model.engine === 'rehearsal');
  const items: Item[] = [
    { label: vscode.l10n.t('Local models'), kind: vscode.QuickPickItemKind.Separator },
    ...local.map(modelItem),
    { label: vscode.l10n.t('Rehearsal: a script speaks, no model'), kind: vscode.QuickPickItemKind.Separator },
    ...(beside === undefined
      ? []
      : [
          {
            label: text(path.posix.basename(beside.path)),
            description: vscode.l10n.t('synthetic · beside the contract'),
            chosen: { engine: 'rehearsal', model: beside.fsPath } as const,
          },
        ]),
    ...scripts.map(modelItem),
    { label: vscode.l10n.t('Choose a Script File…'), browse: true },
    ...(refused.length === 0
      ? []
      : [
          { label: vscode.l10n.t('Refused'), kind: vscode.QuickPickItemKind.Separator } as const,
          ...refused.map((model): Item => ({
            label: text(model.tag),
            description: text(refusedWords(model.refused ?? '', vscode.l10n.t)),
            refused: model,
          })),
        ]),
  ];
  const picked = await vscode.window.showQuickPick(items, {
    title: vscode.l10n.t('Start Session: Model'),
    placeHolder:
      local.length === 0
        ? vscode.l10n.t('No local model was found. A rehearsal shows how everything works.')
        : vscode.l10n.t('Who shall attempt the change?'),
    matchOnDescription: true,
    ignoreFocusOut: true,
  });
  if (picked === undefined || ('kind' in picked && picked.kind === vscode.QuickPickItemKind.Separator))
    return undefined;
  if ('chosen' in picked) return picked.chosen;
  if ('refused' in picked) {
    throw windowFault(
      'CloudModelRefused',
      vscode.l10n.t(
        '{0} is refused: {1}',
        visible(picked.refused.tag),
        refusedWords(picked.refused.refused ?? '', vscode.l10n.t),
      ),
      vscode.l10n.t('Choose a model that runs on this machine.'),
    );
  }
  const [file] =
    (await vscode.window.showOpenDialog({
      title: vscode.l10n.t('Rehearsal Script'),
      filters: { JSON: ['json'] },
      canSelectMany: false,
      defaultUri: vscode.Uri.joinPath(contract, '..'),
    })) ?? [];
  return file === undefined ? undefined : { engine: 'rehearsal', model: file.fsPath };
}
