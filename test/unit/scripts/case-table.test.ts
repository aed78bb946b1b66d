import { expect, it } from 'vitest';
import { adversarialCases, caseTable, type RanTest } from '../../../scripts/lib/adversarial-cases.ts';

const ran = (status: string, ...titles: string[]): RanTest[] => titles.map((fullName) => ({ fullName, status }));
const numbers = Object.keys(adversarialCases);
/** Every case but the first three, held. */
const others = ran('passed', ...numbers.slice(3).map((number) => `[${number}+] holds`));
const [first = '', second = '', third = ''] = numbers;
const lineOf = (tests: readonly RanTest[], number: string): string | undefined =>
  caseTable(tests).lines.find((line) => line.startsWith(`${number.padStart(3)}  `));

it('a case holds with an attack and a control that passed, also where a longer one was skipped', () => {
  const tests = [
    ...others,
    ...ran('passed', `[${first}+] both`, `[${second}] attack`, `[${second}=] control`, `[${third}+] short`),
    ...ran('skipped', `[${third}+] for a long time`),
  ];
  expect(caseTable(tests).missing).toBe(0);
  expect(lineOf(tests, third)).toMatch(/held +attacks 1, controls 1, skipped 1$/u);
});

it('a failed test, a missing control and a case that was only skipped are each missing', () => {
  const tests = [
    ...others,
    ...ran('passed', `[${first}+] both`, `[${second}] attack`),
    ...ran('failed', `[${first}] another`),
    ...ran('skipped', `[${third}+] for a long time`),
  ];
  expect(caseTable(tests).missing).toBe(3);
  expect(
    [first, second, third].map((number) => /FAILED|NO TEST|NO CONTROL/u.exec(lineOf(tests, number) ?? '')?.[0]),
  ).toEqual(['FAILED', 'NO CONTROL', 'NO TEST']);
});
