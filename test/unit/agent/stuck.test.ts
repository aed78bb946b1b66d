import { describe, expect, test } from 'vitest';
import type { Step } from '../../../src/server/agent/stuck.ts';
import { findStuck } from '../../../src/server/agent/stuck.ts';

const step = (action: string | null, observation = 'same', error = false): Step => ({ action, observation, error });
const times = (n: number, ...steps: Step[]): Step[] => Array.from({ length: n }, () => steps).flat();

describe('loops', () => {
  test.each<[string, Step[], string | null]>([
    ['nothing yet', [], null],
    ['three times the same', times(3, step('a')), null],
    ['four times the same', times(4, step('a')), 'repeated_action'],
    ['four times with other results', [step('a', '1'), step('a', '2'), step('a', '3'), step('a', '4')], null],
    ['two errors', times(2, step('a', 'x', true)), null],
    [
      'three errors of one action',
      [step('a', '1', true), step('a', '2', true), step('a', '3', true)],
      'repeated_error',
    ],
    ['three errors of three actions', [step('a', '', true), step('b', '', true), step('c', '', true)], null],
    ['three turns of talk', times(3, step(null)), 'monologue'],
    ['talk between actions', [step(null), step(null), step('a'), step(null)], null],
    ['six in turn', times(3, step('a'), step('b')), 'alternation'],
    ['five in turn', [step('a'), ...times(2, step('b'), step('a'))].slice(0, 5), null],
    ['in turn with news', [1, 2, 3].flatMap((n) => [step('a', `${n}`), step('b')]), null],
  ])('%s', (_name, steps, expected) => {
    expect(findStuck(steps)).toBe(expected);
  });
});
