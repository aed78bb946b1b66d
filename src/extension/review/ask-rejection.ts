import * as vscode from 'vscode';

export interface Rejection {
  /** Why; never empty. */
  readonly comment: string;
  /** Whether it begins another attempt, which reads the comment. */
  readonly correct: boolean;
}

export interface RejectionQuestion {
  readonly title: string;
  /** What was written for this candidate before and not recorded. */
  readonly draft: string;
  /** Attempts of the contract, used and allowed. */
  readonly used: number;
  readonly attempts: number;
  /** Each change of the words, so that they outlive the box. */
  readonly onDraft: (words: string) => void;
}

/** The Kernel takes no longer comment. */
const longest = 8000;

/**
 * Why a candidate is rejected, and what follows from it: one box with both. A decision is final, so it takes words and a
 * choice that stands on screen beside them. Of two boxes one after the other the second would take a key that was meant
 * for the first: VS Code gives Enter to whatever box is open when it comes to it, the first time after asking the
 * extension host. Undefined where the person left; the words are then the next question's draft.
 */
export function askRejection({
  title,
  draft,
  used,
  attempts,
  onDraft,
}: RejectionQuestion): Promise<Rejection | undefined> {
  const left = used < attempts;
  const reject = {
    label: vscode.l10n.t('Reject'),
    detail: left
      ? vscode.l10n.t('The session stays; nothing runs.')
      : vscode.l10n.t('The session stays. Its attempts are used up: {0} of {1}.', used, attempts),
    // What is written is no filter.
    alwaysShow: true,
    correct: false,
  };
  const correct = {
    label: vscode.l10n.t('Reject and Correct'),
    detail: vscode.l10n.t('Attempt {0} of {1} starts anew, with these words.', used + 1, attempts),
    alwaysShow: true,
    correct: true,
  };
  const box = vscode.window.createQuickPick<typeof reject>();
  box.title = title;
  box.placeholder = vscode.l10n.t('Why? Your words are kept with the decision.');
  box.value = draft;
  box.items = left ? [reject, correct] : [reject];
  box.ignoreFocusOut = true;
  const answer = Promise.withResolvers<Rejection | undefined>();
  box.onDidChangeValue((words) => {
    if (box.prompt !== undefined) box.prompt = undefined;
    onDraft(words);
  });
  box.onDidAccept(() => {
    const [chosen] = box.selectedItems;
    const comment = box.value.trim();
    // Of an item that stays selected a second click would say nothing.
    box.selectedItems = [];
    if (comment === '') box.prompt = vscode.l10n.t('Write above what is wrong, then choose.');
    else if (comment.length > longest) box.prompt = vscode.l10n.t('At most {0} characters.', longest);
    else if (chosen !== undefined) {
      answer.resolve({ comment, correct: chosen.correct });
      box.hide();
    }
  });
  box.onDidHide(() => {
    answer.resolve(undefined);
    box.dispose();
  });
  box.show();
  return answer.promise;
}
