import { describe, expect, test } from 'vitest';
import type { UnseenFile } from '../../../src/extension/window-state.ts';
import {
  HiddenChanges,
  hiddenQuestion,
  type HiddenAnswer,
  type HiddenQuestion,
} from '../../../src/extension/review/hidden-question.ts';
import { ids } from '../../fixtures/session.ts';
import { words } from '../../fixtures/window-state.ts';

const { candidate, session } = ids;
const { t } = words;
const whiteSpace: UnseenFile = { path: 'src/usage.py', unseen: [{ kind: 'white-space', lines: 1 }] };
const binary: UnseenFile = { path: 'notes/$(trash)\u202e.bin', unseen: [{ kind: 'binary' }] };

describe('the question before an acceptance of what the diff does not show', () => {
  test('none where nothing is hidden', () => {
    expect(hiddenQuestion(candidate, [], t)).toBeUndefined();
  });

  test('the first row never accepts; each hidden change is a row with its file, and nothing of a name is interpreted', () => {
    const question = hiddenQuestion(candidate, [whiteSpace, binary], t);
    expect(question?.placeHolder).toBe('The diff does not show every change of 2 files.');
    expect(question?.choices.map(({ answer }) => answer)).toEqual(['read', 'show', 'accept']);
    expect(question?.hidden.map(({ label, detail, answer }) => `${answer} ${label}: ${detail}`)).toEqual([
      'read src/usage.py: 1 line differs only in white space, which the diff may hide (diffEditor.ignoreTrimWhitespace is on)',
      'read notes/$\u200a(trash)⟨U+202E⟩.bin: it is binary: the editor shows nothing of it',
    ]);
  });

  test('white space is offered to be shown only where it is hidden', () => {
    const question = hiddenQuestion(candidate, [binary], t);
    expect(question?.choices.map(({ answer }) => answer)).toEqual(['read', 'accept']);
    expect(question?.placeHolder).toBe('The diff does not show every change of 1 file.');
  });

  test('bytes that could not be compared are asked about: nobody knows what is hidden', () => {
    const question = hiddenQuestion(candidate, undefined, t);
    expect(question?.placeHolder).toBe('What its diff hides could not be looked at.');
    expect(question?.choices[0]?.answer).toBe('read');
    expect(question?.hidden).toEqual([]);
  });

  test('many are told by their number', () => {
    const files = Array.from({ length: 60 }, (_, n): UnseenFile => ({ ...binary, path: `${n}.bin` }));
    const question = hiddenQuestion(candidate, files, t);
    expect(question?.hidden).toHaveLength(51);
    expect(question?.hidden.at(-1)).toMatchObject({ label: '10 more', answer: 'read' });
  });
});

describe('accepting what the diff does not show', () => {
  const asking = (...answers: (HiddenAnswer | undefined)[]) => {
    const asked: HiddenQuestion[] = [];
    return {
      asked,
      ask: (question: HiddenQuestion) => {
        asked.push(question);
        return Promise.resolve(answers.shift());
      },
    };
  };

  test('is asked about until it is accepted, and then not again for the same', async () => {
    const hidden = new HiddenChanges();
    const { asked, ask } = asking('read', undefined, 'show', 'accept');
    const answers: unknown[] = [];
    for (let n = 0; n < 5; n++) answers.push(await hidden.answer(session, candidate, [whiteSpace], t, ask));
    expect(answers).toEqual(['read', undefined, 'show', 'accept', 'accept']);
    expect(asked).toHaveLength(4);
  });

  test('is asked about again when it hides something else, for another candidate, and in another session', async () => {
    const hidden = new HiddenChanges();
    const { asked, ask } = asking('accept', undefined, undefined, undefined, undefined);
    expect(await hidden.answer(session, candidate, [whiteSpace], t, ask)).toBe('accept');
    expect(await hidden.answer(session, candidate, [whiteSpace, binary], t, ask)).toBeUndefined();
    expect(await hidden.answer(session, candidate, undefined, t, ask)).toBeUndefined();
    const other = candidate.replace(/.$/, (digit) => (digit === '0' ? '1' : '0')) as typeof candidate;
    expect(await hidden.answer(session, other, [whiteSpace], t, ask)).toBeUndefined();
    const elsewhere = session.replace(/.$/, (last) => (last === '0' ? '1' : '0')) as typeof session;
    expect(await hidden.answer(elsewhere, candidate, [whiteSpace], t, ask)).toBeUndefined();
    expect(asked).toHaveLength(5);
  });

  test('nothing is asked where nothing is hidden', async () => {
    const { asked, ask } = asking();
    expect(await new HiddenChanges().answer(session, candidate, [], t, ask)).toBe('accept');
    expect(asked).toEqual([]);
  });
});
