import type { CandidateDigest, SessionId } from '../../protocol/primitives.ts';
import { shortDigest } from '../trees/words.ts';
import type { Localize } from '../trees/tree-node.ts';
import { visible, withoutIcons } from '../visible-text.ts';
import type { UnseenFile } from '../window-state.ts';
import { unseenWords } from './unseen-words.ts';

/** `read`: its evidence first; `show`: white space in the diff first. */
export type HiddenAnswer = 'read' | 'show' | 'accept';

export interface HiddenRow {
  readonly label: string;
  readonly detail: string;
  readonly answer: HiddenAnswer;
}

export interface HiddenQuestion {
  readonly title: string;
  readonly placeHolder: string;
  /** The first is what a stray Enter chooses: it never accepts. */
  readonly choices: readonly HiddenRow[];
  /** What is hidden, a row each; choosing one reads on. */
  readonly hidden: readonly HiddenRow[];
}

/** More rows than anybody reads; the evidence has them all. */
const mostRows = 50;

/**
 * What a person is asked before they accept a candidate of which the diff does not show every change; undefined where
 * there is nothing to ask. `files` undefined: the bytes could not be compared. Pure.
 */
export function hiddenQuestion(
  candidate: CandidateDigest,
  files: readonly UnseenFile[] | undefined,
  t: Localize,
): HiddenQuestion | undefined {
  const rows = (files ?? []).flatMap(({ path, unseen }) => unseen.map((each) => ({ path, each })));
  if (files !== undefined && rows.length === 0) return undefined;
  const read = {
    label: t('Read First'),
    detail: t('The evidence says what is hidden, and where.'),
    answer: 'read',
  } as const;
  const show = {
    label: t('Show White Space Changes'),
    detail: t('In every diff from now on: turns diffEditor.ignoreTrimWhitespace off.'),
    answer: 'show',
  } as const;
  const accept = {
    label: t('Accept All of It'),
    detail: t('With what the diff does not show. The bytes are written to your folder.'),
    answer: 'accept',
  } as const;
  const shown = rows.slice(0, mostRows).map(({ path, each }) => ({
    label: withoutIcons(visible(path)),
    detail: withoutIcons(unseenWords(each, t)),
    answer: 'read' as const,
  }));
  return {
    title: t('Accept Candidate {0}?', shortDigest(candidate)),
    placeHolder:
      files === undefined
        ? t('What its diff hides could not be looked at.')
        : files.length === 1
          ? t('The diff does not show every change of 1 file.')
          : t('The diff does not show every change of {0} files.', files.length),
    choices: rows.some(({ each }) => each.kind === 'white-space') ? [read, show, accept] : [read, accept],
    hidden:
      rows.length > shown.length ? [...shown, { ...read, label: t('{0} more', rows.length - shown.length) }] : shown,
  };
}

/**
 * Lets an acceptance through when a diff hides nothing, or when the person has said yes to exactly what it hides: asked
 * once, also where the acceptance then had to be tried again. A candidate of another session is another decision, though its
 * bytes be the same.
 */
export class HiddenChanges {
  readonly #accepted = new Map<`${SessionId}/${CandidateDigest}`, string>();

  /** The answer, `accept` also where nothing had to be asked; undefined where the person left. */
  async answer(
    session: SessionId,
    candidate: CandidateDigest,
    files: readonly UnseenFile[] | undefined,
    t: Localize,
    ask: (question: HiddenQuestion) => Promise<HiddenAnswer | undefined>,
  ): Promise<HiddenAnswer | undefined> {
    const question = hiddenQuestion(candidate, files, t);
    const [decided, what] = [`${session}/${candidate}` as const, JSON.stringify(files ?? null)];
    if (question === undefined || this.#accepted.get(decided) === what) return 'accept';
    const answer = await ask(question);
    if (answer === 'accept') this.#accepted.set(decided, what);
    return answer;
  }
}
