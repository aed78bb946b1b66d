import * as vscode from 'vscode';
import type { ImagePrune } from '../../protocol/images.ts';
import { commands, imagesScheme } from '../ids.ts';
import { showInformation, showWarning } from '../messages.ts';
import type { CommandTable, WindowParts } from '../window-parts.ts';
import { imageListText, pruneText } from './images-text.ts';
import { sizeWords } from './size-words.ts';

/** Which images a prune takes; each of these takes what the one before takes, too. */
interface Extent {
  readonly all: boolean;
  readonly setUp: boolean;
}
const extents: readonly Extent[] = [
  { all: false, setUp: false },
  { all: true, setUp: false },
  { all: true, setUp: true },
];

function extentWords({ all, setUp }: Extent): string {
  if (setUp) return vscode.l10n.t('Also Those That npm run setup Made');
  return all
    ? vscode.l10n.t('Also Those That Could Still Be Used')
    : vscode.l10n.t('Those That This Version Cannot Use');
}

const countWords = (images: number, bytes: number): string =>
  images === 0
    ? vscode.l10n.t('None')
    : images === 1
      ? vscode.l10n.t('1 image, {0}', sizeWords(bytes))
      : vscode.l10n.t('{0} images, {1}', images, sizeWords(bytes));

/** What Escrow has in the container engine, and removing what nothing needs, after a look at what that would be. */
export function imageListCommands(parts: WindowParts): CommandTable {
  const { link, observer, texts, words } = parts;

  async function show(text: string): Promise<void> {
    const document = await texts.open(vscode.l10n.t('Sandbox images'), text, { scheme: imagesScheme, fragment: '' });
    await vscode.window.showTextDocument(document, { preview: true, preserveFocus: true });
  }

  /** How far to go; each choice with what it would remove. Undefined where the person left. */
  async function chooseExtent(previews: readonly ImagePrune[]): Promise<number | undefined> {
    const rows = previews.flatMap((preview, index) => {
      const extent = extents[index];
      // A wider choice that takes nothing more is none.
      const same = previews[index - 1]?.removed.length === preview.removed.length;
      if (extent === undefined || same) return [];
      return [
        {
          label: extentWords(extent),
          detail: countWords(preview.removed.length, preview.freedBytes),
          index,
        },
      ];
    });
    const fitting = rows.filter(({ index }) => (previews[index]?.removed.length ?? 0) > 0);
    const picked = await vscode.window.showQuickPick(fitting, {
      title: vscode.l10n.t('Prune Sandbox Images'),
      placeHolder: vscode.l10n.t('Which? What would go is shown first; nothing is removed yet.'),
      ignoreFocusOut: true,
    });
    return picked?.index;
  }

  async function confirm(preview: ImagePrune): Promise<boolean> {
    await show(pruneText(preview, words));
    const picked = await vscode.window.showQuickPick(
      [
        { label: vscode.l10n.t('Keep Them'), detail: vscode.l10n.t('Nothing is removed.'), remove: false },
        {
          label: vscode.l10n.t('Remove Them'),
          detail: vscode.l10n.t(
            '{0}. What is needed again has to be prepared again.',
            countWords(preview.removed.length, preview.freedBytes),
          ),
          remove: true,
        },
      ],
      {
        title: vscode.l10n.t('Remove These Images?'),
        placeHolder: vscode.l10n.t('They are listed in the editor.'),
        ignoreFocusOut: true,
      },
    );
    return picked?.remove === true;
  }

  return {
    [commands.listImages]: async () => {
      await parts.ensureConnected();
      await show(imageListText(await link.request('image/list', {}), words));
    },
    [commands.pruneImages]: async () => {
      await parts.ensureConnected();
      const previews: ImagePrune[] = [];
      for (const extent of extents) previews.push(await link.request('image/prune', { ...extent, preview: true }));
      if (previews.every(({ removed }) => removed.length === 0)) {
        showInformation(vscode.l10n.t('No sandbox image can go: each is needed, or is not of this state folder.'));
        return;
      }
      const chosen = await chooseExtent(previews);
      const extent = chosen === undefined ? undefined : extents[chosen];
      const preview = chosen === undefined ? undefined : previews[chosen];
      if (extent === undefined || preview === undefined || !(await confirm(preview))) return;
      const done = await parts.operations.run(
        vscode.l10n.t('Removing sandbox images'),
        countWords(preview.removed.length, preview.freedBytes),
        () => link.request('image/prune', { ...extent, preview: false }),
        false,
      );
      await show(pruneText(done, words));
      if (done.failed.length > 0) {
        showWarning(vscode.l10n.t('{0} images could not be removed. The editor says why.', done.failed.length));
      }
      await observer.refresh('status');
    },
  };
}
