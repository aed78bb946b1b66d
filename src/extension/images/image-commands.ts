import * as vscode from 'vscode';
import { ContractDigest } from '../../protocol/primitives.ts';
import type { ImagePlan } from '../../protocol/images.ts';
import { EscrowError } from '../../protocol/errors.ts';
import { commands, imagePlanScheme } from '../ids.ts';
import { offer, showError, showInformation } from '../messages.ts';
import { progressWords } from '../progress-words.ts';
import { assertedReviewer } from '../review/asserted-reviewer.ts';
import { shortDigest } from '../trees/words.ts';
import { visible } from '../visible-text.ts';
import type { CommandTable, WindowParts } from '../window-parts.ts';
import { recordText } from './images-text.ts';
import { downloadWords, planText } from './plan-text.ts';

type Answer = 'once' | 'always' | 'no' | undefined;

/** A text about an image, whose title has the button that prepares it; the one before it makes room. */
async function show(parts: WindowParts, text: string, digest: ContractDigest | undefined): Promise<void> {
  const document = await parts.texts.open(vscode.l10n.t('Sandbox image'), text, {
    scheme: imagePlanScheme,
    fragment: digest ?? '',
  });
  await vscode.window.showTextDocument(document, { preview: true, preserveFocus: true });
}

/** Shows the plan and asks. The words on screen are all that the answer is about. */
async function ask(parts: WindowParts, plan: ImagePlan, digest: ContractDigest | undefined): Promise<Answer> {
  await show(parts, planText(plan, vscode.l10n.t), digest);
  const network = plan.steps.some((step) => step.network && !step.cached);
  // The first row is what a stray Enter chooses.
  const items: (vscode.QuickPickItem & { readonly answer: Answer })[] = [
    {
      label: vscode.l10n.t('Read the Plan First'),
      detail: vscode.l10n.t('It is open in the editor; the button in its title asks again.'),
      answer: undefined,
    },
    {
      label: vscode.l10n.t('Prepare'),
      detail: network
        ? vscode.l10n.t('Reaches for the network, this once. Download: {0}.', downloadWords(plan, vscode.l10n.t))
        : vscode.l10n.t('Nothing is downloaded.'),
      answer: 'once',
    },
    ...(plan.mayStand
      ? [
          {
            label: vscode.l10n.t('Prepare, Now and Later'),
            detail: vscode.l10n.t('For exactly these parts, without asking again.'),
            answer: 'always' as const,
          },
        ]
      : []),
    { label: vscode.l10n.t('Do Not Prepare'), detail: vscode.l10n.t('Recorded. Nothing is done.'), answer: 'no' },
  ];
  const picked = await vscode.window.showQuickPick(items, {
    title: vscode.l10n.t('Prepare the Sandbox Image?'),
    placeHolder: vscode.l10n.t('{0} steps, each with what it fetches and runs', plan.steps.length),
    ignoreFocusOut: true,
  });
  return picked?.answer;
}

/**
 * Makes sure that the image of a contract (or the default one) is there: asks a person where something would have to be
 * made or fetched. False when they said no or left. Throws EscrowError.
 */
async function ensureImage(parts: WindowParts, digest: ContractDigest | undefined): Promise<boolean> {
  const { link, observer } = parts;
  const which = digest === undefined ? {} : { digest };
  const plan = await link.request('image/plan', which);
  if (plan.state === 'ready') return true;
  const reviewer = await assertedReviewer(undefined);
  const answer = plan.approval === null ? await ask(parts, plan, digest) : 'standing';
  if (answer === undefined) return false;
  if (answer === 'no') {
    await link.request('image/decline', { plan: plan.plan, reviewer });
    return false;
  }
  const { record } = await parts.operations.run(
    vscode.l10n.t('Preparing image'),
    visible(plan.base.reference),
    (token, progress) =>
      link.request(
        'image/prepare',
        {
          ...which,
          plan: plan.plan,
          approval: answer === 'standing' ? null : { reviewer, standing: answer === 'always' },
        },
        token,
        (made) => {
          progress(progressWords(made, vscode.l10n.t));
        },
      ),
  );
  // What was really done stands where what would be done was read.
  if (record !== null) await show(parts, recordText(record, parts.words), digest);
  await observer.refresh('status');
  return true;
}

/**
 * Does work that needs the image of a contract. Where it is missing, a person is asked, it is prepared, and the work is
 * begun once more. Rejects with `Cancelled` when they said no.
 */
export async function withImage<T>(parts: WindowParts, digest: ContractDigest, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (!EscrowError.is(error, 'ImageUnavailable')) throw error;
    if (!(await ensureImage(parts, digest))) {
      throw new EscrowError('Cancelled', vscode.l10n.t('The sandbox image was not prepared.'), '');
    }
    return work();
  }
}

/** A standing yes can be taken back where it is spoken of. */
async function offerToTakeBack(parts: WindowParts, text: string, plan: ImagePlan['plan']): Promise<void> {
  if (!(await offer('information', text, vscode.l10n.t('Take It Back')))) return;
  try {
    await parts.link.request('image/decline', { plan, reviewer: await assertedReviewer(undefined) });
    showInformation(vscode.l10n.t('Taken back: the next preparation asks.'));
  } catch (error) {
    await showError(error, parts.log);
  }
}

export function imageCommands(parts: WindowParts): CommandTable {
  return {
    [commands.prepareImage]: async (argument) => {
      await parts.ensureConnected();
      // From the title of a plan: that plan's image. Else the default one.
      const about = argument instanceof vscode.Uri && argument.scheme === imagePlanScheme ? argument.fragment : '';
      const digest = about === '' ? undefined : ContractDigest.parse(about);
      if (!(await ensureImage(parts, digest))) return;
      const { image, plan, approval } = await parts.link.request('image/plan', digest === undefined ? {} : { digest });
      const ready =
        image === null
          ? vscode.l10n.t('The sandbox image is ready.')
          : vscode.l10n.t('The sandbox image is ready: {0}.', shortDigest(image.digest));
      if (approval?.standing !== true) {
        showInformation(ready);
        return;
      }
      // Not awaited: the command is over when the image is there.
      void offerToTakeBack(parts, `${ready} ${vscode.l10n.t('Your yes stands for exactly these parts.')}`, plan);
    },
  };
}
