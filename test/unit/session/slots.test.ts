import { expect, it } from 'vitest';
import { EscrowError } from '../../../src/protocol/errors.ts';
import { Slots } from '../../../src/server/session/slots.ts';

const entry = (id: string) => ({ what: 'attempt' as const, id, label: id });

it('gives one slot at a time, in order, and shows who waits', async () => {
  let changes = 0;
  const slots = new Slots(1, () => (changes += 1));
  const first = await slots.acquire(entry('a'));
  const order: string[] = [];
  const second = slots.acquire(entry('b')).then((release) => (order.push('b'), release));
  const third = slots.acquire(entry('c')).then((release) => (order.push('c'), release));
  expect(slots.active.map((e) => e.id)).toEqual(['a']);
  expect([slots.position('b'), slots.position('c'), slots.position('a')]).toEqual([1, 2, null]);
  first();
  first(); // releasing twice frees one slot only
  (await second)();
  (await third)();
  expect(order).toEqual(['b', 'c']);
  expect(slots.active).toEqual([]);
  expect(changes).toBeGreaterThanOrEqual(5);
});

it('a cancelled wait leaves the queue and is refused by name; the next one moves up', async () => {
  const slots = new Slots(1, () => undefined);
  const release = await slots.acquire(entry('a'));
  const abort = new AbortController();
  const waiting = slots.acquire(entry('b'), abort.signal);
  const after = slots.acquire(entry('c'));
  abort.abort();
  await expect(waiting).rejects.toSatisfy((error) => EscrowError.is(error, 'Cancelled'));
  expect(slots.position('c')).toBe(1);
  release();
  (await after)();
});

it('abort after the grant takes nothing away', async () => {
  const slots = new Slots(1, () => undefined);
  const abort = new AbortController();
  const release = await slots.acquire(entry('a'), abort.signal);
  abort.abort();
  expect(slots.active).toHaveLength(1);
  release();
});

it('what an earlier Kernel left takes its place at once, beyond the capacity; new work waits until there is room', async () => {
  const slots = new Slots(1, () => undefined);
  const [one, two] = [slots.occupy(entry('left-1')), slots.occupy(entry('left-2'))];
  expect(slots.active.map((e) => e.id)).toEqual(['left-1', 'left-2']);
  let granted = false;
  const waiting = slots.acquire(entry('new')).then((release) => {
    granted = true;
    return release;
  });
  one();
  one(); // releasing twice frees one place only
  await Promise.resolve();
  expect(granted).toBe(false);
  two();
  (await waiting)();
  expect(slots.active).toEqual([]);
});

it('a larger capacity runs as many at once', async () => {
  const slots = new Slots(3, () => undefined);
  const releases = await Promise.all(['a', 'b', 'c'].map((id) => slots.acquire(entry(id))));
  expect(slots.active).toHaveLength(3);
  for (const release of releases) release();
});
