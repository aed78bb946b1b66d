import { expect, test } from 'vitest';
import { progressWords } from '../../../src/extension/progress-words.ts';
import { words } from '../../fixtures/window-state.ts';

const said = (code: string, detail: string, percent: number | null): string =>
  progressWords({ code, detail, percent }, words.t);

test('a step is named as the plan named it, with how far it is', () => {
  expect(said('node', '', 7)).toBe('7 % · Node for the executor');
  expect(said('pull', 'debian:trixie', 5)).toBe('5 % · Pull the base debian:trixie');
  expect(said('opaque', 'make all', 60)).toBe('60 % · A command of the contract: make all');
  expect(said('check', 'unit', 50)).toBe('50 % · Check unit');
});

test('where nothing is known of how far, nothing is said of it', () => {
  expect(said('waiting', '', null)).toBe('Waits for its turn');
});

test('what a later Kernel says is shown with its code, and hostile text is made visible', () => {
  expect(said('polish', '', 50)).toBe('50 % · polish');
  expect(said('polish', 'x', 50)).toBe('50 % · polish x');
  expect(said('opaque', 'a\u202eb\n', 60)).not.toMatch(/[\u202e\n]/);
});
