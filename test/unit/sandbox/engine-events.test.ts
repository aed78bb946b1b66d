// Listening to what a container engine tells of one container: real sockets, and engines that break, lie, flood and stall.
import { afterEach, describe, expect, it } from 'vitest';
import { ContainerEngine } from '../../../src/server/sandbox/engine.ts';
import { EngineEvents } from '../../../src/server/sandbox/engine-events.ts';
import {
  endsAtOnce,
  eventEngine,
  eventLine,
  floodsWith,
  refuses,
  stalls,
  tells,
  tellsAndBreaks,
  type EventEngine,
  type Script,
} from '../../fixtures/bad-peers/engine-event-streams.ts';
import { eventually } from '../../fixtures/kernel.ts';

const id = 'a'.repeat(64);
const other = 'b'.repeat(64);
const of = (action: string, second: number): string => eventLine(id, action, second);

let engine: EventEngine | undefined;
let events: EngineEvents | undefined;
afterEach(async () => {
  events?.close();
  await engine?.close();
});

async function listening(scripts: readonly Script[], since: number | null = null): Promise<EngineEvents> {
  engine = await eventEngine(scripts);
  events = new EngineEvents(new ContainerEngine({ kind: 'socket', path: engine.socket }), id, since);
  return events;
}
const streams = (n: number) => eventually(`${n} streams were asked for`, async () => (engine?.asked.length ?? 0) >= n);
const allClosed = () => eventually('no stream is open', async () => engine?.open() === 0);
const long = 60_000;

describe('events of an engine', () => {
  it('are counted from start to end, and only those of this container', async () => {
    const heard = await listening([
      tells(
        of('start', 1),
        of('oom', 2),
        eventLine(other, 'oom', 2),
        of('oom', 2),
        of('exec_create: x', 3),
        of('die', 4),
      ),
    ]);
    await heard.untilOver(long);
    expect(heard.heard).toEqual({ ooms: 2, kills: 0, whole: true });
    expect(engine?.asked).toEqual([null]);
    await allClosed();
  });

  it('go on where the stream broke, once each, and are at least so many from then on', async () => {
    const heard = await listening([
      tellsAndBreaks(of('start', 10), of('oom', 11), of('oom', 12).slice(0, 20)),
      tells(of('start', 10), of('oom', 11), of('oom', 12), of('kill', 13), of('die', 14)),
    ]);
    await streams(2);
    await heard.untilOver(long);
    expect(heard.heard).toEqual({ ooms: 2, kills: 1, whole: false });
    // From the second of the last event on: what is told twice is counted once.
    expect(engine?.asked).toEqual([null, '11']);
  });

  it('of a container that exists already are asked for from its making on', async () => {
    const heard = await listening([tells(of('start', 7), of('oom', 8), of('die', 9))], 6_500);
    await heard.untilOver(long);
    expect(heard.heard).toEqual({ ooms: 1, kills: 0, whole: true });
    expect(engine?.asked).toEqual(['6']);
  });

  it('that begin after the start are at least so many', async () => {
    const heard = await listening([tells(of('oom', 8), of('die', 9))]);
    await heard.untilOver(long);
    expect(heard.heard).toEqual({ ooms: 1, kills: 0, whole: false });
  });

  it.each([
    ['ends each stream at once', endsAtOnce],
    ['refuses', refuses],
  ])('are unavailable, not none, from an engine that %s; it is asked again', async (_, script) => {
    const heard = await listening([script]);
    await streams(2);
    expect(heard.heard).toBeNull();
    heard.close();
    await allClosed();
  });

  it('hold nobody up where an engine never answers', async () => {
    const heard = await listening([stalls]);
    await streams(1);
    await heard.untilOver(20);
    expect(heard.heard).toBeNull();
    heard.close();
  });

  it.each([
    ['a line without an end', 'x'.repeat(65_536)],
    ['lines that are no events', '{"Action":1}\nnull\n[]\n'.repeat(500)],
    ['empty lines', '\n'.repeat(65_536)],
    ['events without an end', of('oom', 5).repeat(200)],
  ])('are not listened to any longer where an engine floods with %s', async (_, piece) => {
    const heard = await listening([floodsWith(piece)]);
    await streams(1);
    // It is left by us, and for good: the flood itself would not end.
    await heard.untilOver(long);
    await allClosed();
    expect(heard.heard?.whole ?? false).toBe(false);
    expect(engine?.asked).toHaveLength(1);
  });

  it('in pieces of one byte and with garbage between them are the same events', async () => {
    const text = `garbage\n{}\n${of('start', 1)}\n{"Action":"oom"}\n${of('oom', 2)}${of('die', 3)}`;
    const heard = await listening([
      (response) => {
        for (const byte of Buffer.from(text)) response.write(Buffer.of(byte));
      },
    ]);
    await heard.untilOver(long);
    expect(heard.heard).toEqual({ ooms: 1, kills: 0, whole: true });
  });
});
