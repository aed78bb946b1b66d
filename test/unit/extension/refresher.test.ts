import { expect, test } from 'vitest';
import { Refresher } from '../../../src/extension/kernel/refresher.ts';

/** A fetch that the test ends. */
function gated() {
  const begun: { key: string; resolve: () => void; reject: (error: Error) => void }[] = [];
  const errors: string[] = [];
  const refresher = new Refresher<string>(
    (key) => {
      const { promise, resolve, reject } = Promise.withResolvers<void>();
      begun.push({ key, resolve, reject });
      return promise;
    },
    (key, error) => errors.push(`${key}: ${String(error)}`),
  );
  return { refresher, begun, errors };
}

test('a burst of wishes costs two fetches, and everybody waits for one that began after their wish', async () => {
  const { refresher, begun } = gated();
  const first = refresher.refresh('a');
  const later = [refresher.refresh('a'), refresher.refresh('a'), refresher.refresh('a')];
  expect(begun).toHaveLength(1);
  begun[0]?.resolve();
  await first;
  await Promise.resolve();
  expect(begun).toHaveLength(2);
  begun[1]?.resolve();
  await Promise.all(later);
  expect(begun).toHaveLength(2);
  void refresher.refresh('a');
  expect(begun).toHaveLength(3);
  begun[2]?.resolve();
});

test('keys do not wait for each other', () => {
  const { refresher, begun } = gated();
  void refresher.refresh('a');
  void refresher.refresh('b');
  expect(begun.map(({ key }) => key)).toEqual(['a', 'b']);
});

test('a failure is reported, and the next wish asks again', async () => {
  const { refresher, begun, errors } = gated();
  const first = refresher.refresh('a');
  begun[0]?.reject(new Error('gone'));
  await first;
  expect(errors).toEqual(['a: Error: gone']);
  void refresher.refresh('a');
  expect(begun).toHaveLength(2);
  begun[1]?.resolve();
});
