import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import type { LiveInference } from '../../../src/protocol/attempt.ts';
import { LiveBoard } from '../../../src/server/session/live-board.ts';
import { ids } from '../../fixtures/session.ts';

const live = (state: LiveInference['state'], chars: number): LiveInference => ({
  attempt: ids.attempt,
  n: 1,
  state,
  sinceMs: chars,
  text: '',
  chars,
});

describe('what a running request does', () => {
  let told: (string | null)[];
  let board: LiveBoard;
  beforeEach(() => {
    vi.useFakeTimers();
    told = [];
    board = new LiveBoard((_session, newest) => told.push(newest === null ? null : `${newest.state} ${newest.chars}`));
  });
  afterEach(() => {
    vi.useRealTimers();
  });

  test('is told at once when it changes, else a few times a second, and the end at once', () => {
    board.put(ids.session, live('loading', 0));
    board.put(ids.session, live('answering', 1));
    for (let n = 2; n <= 50; n += 1) board.put(ids.session, live('answering', n));
    expect(told).toEqual(['loading 0', 'answering 1']);
    expect(board.get(ids.session)?.chars).toBe(50);
    vi.advanceTimersByTime(200);
    expect(told.at(-1)).toBe('answering 50');
    vi.advanceTimersByTime(2000);
    expect(told).toHaveLength(3);
    // After a pause the next sign of life is told at once.
    board.put(ids.session, live('answering', 51));
    expect(told.at(-1)).toBe('answering 51');
    board.put(ids.session, null);
    expect(told.at(-1)).toBeNull();
    vi.advanceTimersByTime(2000);
    expect(told).toHaveLength(5);
    expect(board.get(ids.session)).toBeNull();
  });
});
