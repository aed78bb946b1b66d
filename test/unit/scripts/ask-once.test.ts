import { expect, it } from 'vitest';
import { askOnce, type Question, type Ui } from '../../../scripts/lib/ui.ts';

const question = (about: string): Question => ({ about, text: `Change ${about}` });
function asked(answer: boolean): { readonly ui: Ui; readonly questions: string[] } {
  const questions: string[] = [];
  return {
    questions,
    ui: {
      log: () => undefined,
      confirm: ({ text }) => {
        questions.push(text);
        return Promise.resolve(answer);
      },
    },
  };
}

it.each([true, false])(
  'what is foreseen is asked once, all of it, and the answer (%s) counts for each',
  async (yes) => {
    const { ui, questions } = asked(yes);
    const after = await askOnce(ui, [question('a'), question('b')]);
    expect(questions).toEqual([expect.stringMatching(/Change a[^]*Change b/)]);
    expect(await after.confirm({ about: 'a', text: 'in other words' })).toBe(yes);
    expect(await after.confirm(question('b'))).toBe(yes);
    expect(questions).toHaveLength(1);
  },
);

it('what nobody foresaw is asked when it comes to it', async () => {
  const { ui, questions } = asked(true);
  const after = await askOnce(ui, [question('a')]);
  await after.confirm(question('c'));
  expect(questions).toEqual(['Change a', 'Change c']);
});

it('where nothing is to be changed, nothing is asked', async () => {
  const { ui, questions } = asked(false);
  await askOnce(ui, []);
  expect(questions).toEqual([]);
});
