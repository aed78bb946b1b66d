// What ended a container: the words of four witnesses that need not agree.
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { hostCounter } from '../../../src/server/sandbox/host-counter.ts';
import { ContainerEngine } from '../../../src/server/sandbox/engine.ts';
import { endedByShortage, OomWatch, type OomEvidence } from '../../../src/server/sandbox/oom-watch.ts';
import type { OomWord } from '../../../src/server/sandbox/port.ts';
import { eventEngine, eventLine, tells } from '../../fixtures/bad-peers/engine-event-streams.ts';
import { eventually } from '../../fixtures/kernel.ts';

const quiet: OomEvidence = { inside: 0, host: null, events: null, eventsSinceLook: 0, flag: false, byItself: true };
const heard = (ooms: number, more: object = {}) => ({ ooms, kills: 0, whole: true, ...more });

describe('a container that ended by itself', () => {
  const ended: Readonly<Record<string, Partial<OomEvidence>>> = {
    'this machine counted one that the supervisor did not live to tell': { host: 1 },
    'this machine counted more than the supervisor told': { inside: 2, host: 3, events: heard(2) },
    'the engine told of one after the supervisor’s last word': { inside: 1, events: heard(2), eventsSinceLook: 1 },
    'nobody but the engine’s flag says so': { flag: true },
    'only the flag says so, of an engine that tells no events, and nobody could count inside': {
      inside: null,
      flag: true,
    },
    'its stream was broken, and the flag says so': { events: heard(0, { whole: false }), flag: true },
  };
  it.each(Object.entries(ended))('was ended by a shortage of memory where %s', (_, parts) => {
    expect(endedByShortage({ ...quiet, ...parts })).toBe(true);
  });

  const not: Readonly<Record<string, Partial<OomEvidence>>> = {
    'nobody tells of any': {},
    'nobody can tell': { inside: null },
    'both counts are those that it lived through': { inside: 2, host: 2 },
    'the flag is that of commands that were ended earlier, by the engine’s own events': {
      inside: 2,
      events: heard(2),
      flag: true,
    },
    'somebody had the engine kill it': { events: heard(1, { kills: 1 }), eventsSinceLook: 1, flag: true },
    'it was running until we ended it': { host: 1, events: heard(1), eventsSinceLook: 1, flag: true, byItself: false },
  };
  it.each(Object.entries(not))('was not where %s', (_, parts) => {
    expect(endedByShortage({ ...quiet, ...parts })).toBe(false);
  });
});

describe('a watch over one container', () => {
  const id = 'd'.repeat(64);
  const line = (action: string) => eventLine(id, action, 1);
  const watching = async (actions: readonly string[], steps: (watch: OomWatch) => void): Promise<OomWord> => {
    const engine = await eventEngine([tells(...actions.map(line))]);
    const watch = new OomWatch(new ContainerEngine({ kind: 'socket', path: engine.socket }), id, null, true);
    try {
      await eventually('the engine has told of it', () => watch.events !== null);
      steps(watch);
      return await watch.word(true);
    } finally {
      watch.close();
      await engine.close();
    }
  };

  it('tells a container that had ended by itself from one that we killed, although the engine still called it running', async () => {
    const actions = ['start', 'oom', 'kill', 'die'];
    const gone = await watching(actions, (watch) => {
      watch.channelEnded({ kind: 'stream-ended' });
      watch.beforeKill();
      watch.killed();
    });
    expect(gone).toMatchObject({ events: 1, eventsWhole: true, ended: true });
    const killed = await watching(actions, (watch) => {
      watch.beforeKill();
      watch.killed();
      watch.channelEnded({ kind: 'stream-ended' });
    });
    expect(killed).toMatchObject({ events: 1, ended: false });
  });

  it('tells a kill that somebody else asked for from ours', async () => {
    const other = await watching(['start', 'oom', 'kill', 'die'], (watch) => {
      watch.channelEnded({ kind: 'stream-ended' });
      // Refused: it was not running any more.
      watch.beforeKill();
    });
    expect(other).toMatchObject({ events: 1, ended: false });
  });
});

describe('the kernel’s count, read by this machine', () => {
  const id = 'c'.repeat(64);
  let folder: string;
  beforeAll(async () => {
    folder = await mkdtemp(path.join(tmpdir(), 'escrow-cgroup-'));
  });
  afterAll(() => rm(folder, { recursive: true, force: true }));

  const at = async (name: string, text: string): Promise<string> => {
    const file = path.join(folder, name);
    await mkdir(path.dirname(file), { recursive: true });
    await writeFile(file, text);
    return file;
  };
  const counter = (pid: number) =>
    hostCounter(pid, id, { proc: path.join(folder, 'proc'), cgroups: path.join(folder, 'cgroup') });

  it.each([
    ['v1, Docker', 11, `4:memory:/docker/${id}\n0::/docker/${id}\n`, `memory/docker/${id}/memory.oom_control`],
    [
      'v1 with controllers together, Podman',
      12,
      `4:cpu,memory:/p/libpod-${id}\n`,
      `memory/p/libpod-${id}/memory.oom_control`,
    ],
    ['v2, systemd', 13, `0::/system.slice/docker-${id}.scope\n`, `system.slice/docker-${id}.scope/memory.events`],
  ])('is found on %s, rises, and is null once its group is gone', async (_, pid, groups, name) => {
    await at(`proc/${pid}/cgroup`, groups);
    const file = await at(`cgroup/${name}`, 'oom_kill_disable 0\nunder_oom 0\noom_kill 0\n');
    const found = await counter(pid);
    expect(found?.read()).toBe(0);
    await writeFile(file, 'low 0\nhigh 0\nmax 9\noom 4\noom_kill 3\noom_group_kill 0\n');
    expect(found?.read()).toBe(3);
    await rm(file);
    expect(found?.read()).toBeNull();
  });

  it.each([
    [
      'another process of the same number, as with an engine in another machine',
      21,
      '4:memory:/user.slice\n0::/user.slice\n',
    ],
    ['a path that leads out of the part of the tree that is seen here', 22, `0::/../../docker/${id}\n`],
    ['a group that is not seen here', 23, `0::/elsewhere/${id}\n`],
  ])('is not read of %s', async (_, pid, groups) => {
    await at(`proc/${pid}/cgroup`, groups);
    await at('cgroup/user.slice/memory.events', 'oom_kill 9\n');
    await at('cgroup/memory/user.slice/memory.oom_control', 'oom_kill 9\n');
    expect(await counter(pid)).toBeNull();
  });

  it.each([0, -1, 99])('is not read of process %s, which is not there', async (pid) => {
    expect(await counter(pid)).toBeNull();
  });
});
