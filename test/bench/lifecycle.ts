import { cp, mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import Database from 'better-sqlite3';
import type { KernelConnection } from '../../src/client/kernel-connection.ts';
import type { SessionId } from '../../src/protocol/primitives.ts';
import { openStore } from '../../src/server/store/open-store.ts';
import { crashRun } from '../fixtures/crash-run.ts';
import { exampleRepo } from '../fixtures/example-repo.ts';
import { prepareContract, sessionAt, startSession, turns, verified, writeScript } from '../fixtures/journey.ts';
import { endKernel, makeHome, startTestKernel, type TestKernel } from '../fixtures/kernel.ts';
import { ownBundles } from '../fixtures/own-bundles.ts';
import { fillStore } from '../fixtures/session-crowd.ts';
import { median, ratio, time, timed, type Figure, type Suite } from './figures.ts';

const crowd = { sessions: 5_000, events: 100_000 } as const;
const startSamples = 9;
const attachSamples = 9;
const appendRounds = 9;
const appendsPerRound = 400;
const soakAttempts = 12;
const soakReads = 4_000;

/** Set for the run of the suite: a copy of the bundles, which nobody rebuilds meanwhile. */
let entry = '';
const open = (home: string): Promise<TestKernel> => startTestKernel({ home, entry });

/** Homes with a long and with no history. The long one is written where syncs cost nothing, then copied. */
async function homes(say: (line: string) => void): Promise<{ full: string; empty: string }> {
  const full = await makeHome();
  const fast = await mkdtemp('/dev/shm/escrow-crowd-').catch(() => mkdtemp(path.join(tmpdir(), 'escrow-crowd-')));
  try {
    say(`writing ${crowd.sessions} sessions with ${crowd.events} events`);
    const store = openStore({ home: fast, now: Date.now });
    const events = fillStore(store, crowd);
    store.close();
    say(`${events} events are in the log`);
    await cp(fast, full, { recursive: true });
  } finally {
    await rm(fast, { recursive: true, force: true });
  }
  return { full, empty: await makeHome() };
}

/** Milliseconds from the spawn of a Kernel until a client has proven itself to it; the Kernel ends as `end` says. */
async function coldStart(home: string, end: 'asked' | 'killed'): Promise<number> {
  let kernel: TestKernel | undefined;
  const ms = await timed(async () => {
    kernel = await open(home);
  });
  if (end === 'killed') await kernel?.kill();
  kernel?.kernel.dispose();
  await endKernel(home);
  return ms;
}

async function starts(
  full: string,
  empty: string,
  end: 'asked' | 'killed',
): Promise<{ full: number[]; empty: number[] }> {
  const samples = { full: [] as number[], empty: [] as number[] };
  for (let n = -1; n < startSamples; n += 1) {
    const small = await coldStart(empty, end);
    const large = await coldStart(full, end);
    // The first round warms the page cache and, after a kill, makes the next start one after a kill.
    if (n < 0) continue;
    samples.empty.push(small);
    samples.full.push(large);
  }
  return samples;
}

/** What a window does when it comes: connect, subscribe, list its folder, open one session. */
async function attach(kernel: TestKernel, root: string, session: SessionId): Promise<number> {
  let window: KernelConnection | undefined;
  const ms = await timed(async () => {
    window = await kernel.connect({ kind: 'window' });
    await window.call('evidence/subscribe', { lastSeenSeq: 0 });
    await window.call('session/list', { root, limit: 100 });
    await window.call('session/get', { session });
    await window.call('kernel/status', {});
  });
  window?.dispose();
  return ms;
}

/** Every summary, in pages as large as they come. */
async function wholeList(kernel: KernelConnection): Promise<number> {
  let count = 0;
  let last: { readonly updatedAt: number; readonly id: SessionId } | undefined;
  for (;;) {
    const page = await kernel.call('session/list', {
      limit: 500,
      ...(last === undefined ? {} : { before: last.updatedAt, beforeSession: last.id }),
    });
    count += page.sessions.length;
    last = page.sessions.at(-1);
    if (!page.more || last === undefined) return count;
  }
}

/** Durable transitions of our store against bare better-sqlite3 with the same rows, settings and transactions. */
async function transitions(): Promise<readonly Figure[]> {
  const home = await makeHome();
  const bareHome = await makeHome();
  const store = openStore({ home, now: Date.now });
  openStore({ home: bareHome, now: Date.now }).close();
  const bare = new Database(path.join(bareHome, 'escrow.db'));
  try {
    bare.pragma('journal_mode = WAL');
    bare.pragma('synchronous = FULL');
    bare.pragma('foreign_keys = ON');
    const event = bare.prepare(
      'INSERT INTO event (seq, stream, version, type, at, data, prev_hash, hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?)',
    );
    const head = bare.prepare(
      "INSERT INTO meta VALUES ('head', ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
    );
    const view = bare.prepare(
      `INSERT INTO view (kind, key, root, created_at, updated_at, json) VALUES (?, ?, ?, ?, ?, ?)
       ON CONFLICT (kind, key) DO UPDATE SET updated_at = excluded.updated_at, json = excluded.json`,
    );
    const data = {
      attempt: 'att_0000000000000000aaaa',
      item: { kind: 'tool', title: 'view', text: 'x'.repeat(400), ok: true },
    };
    const summary = { id: 'ses_0000000000000000aaaa', title: 'Session', state: 'running', updatedAt: 1 };
    const [dataText, summaryText, hash] = [JSON.stringify(data), JSON.stringify(summary), 'a'.repeat(64)];
    let version = 0;
    const ours = (): void => {
      store.append('session:a', version, [{ type: 'attempt.activity', data }], () => [
        { kind: 'session', key: 'a', root: '/r', createdAt: 1, updatedAt: version, json: summary },
        { kind: 'open', key: 'a', root: 'open', createdAt: 1, updatedAt: version, json: null },
      ]);
    };
    const same = bare.transaction(() => {
      event.run(version + 1, 'session:a', version + 1, 'attempt.activity', Date.now(), dataText, hash, hash);
      head.run(`${version + 1}:${hash}`);
      view.run('session', 'a', '/r', 1, version, summaryText);
      view.run('open', 'a', 'open', 1, version, 'null');
    });
    const perSecond = { ours: [] as number[], bare: [] as number[] };
    for (let round = -1; round < appendRounds; round += 1) {
      const from = version;
      const oursMs = await timed(async () => {
        for (let n = 0; n < appendsPerRound; n += 1, version += 1) ours();
        await Promise.resolve();
      });
      version = from;
      const bareMs = await timed(async () => {
        for (let n = 0; n < appendsPerRound; n += 1, version += 1) same.immediate();
        await Promise.resolve();
      });
      if (round < 0) continue;
      perSecond.ours.push((appendsPerRound * 1000) / oursMs);
      perSecond.bare.push((appendsPerRound * 1000) / bareMs);
    }
    const rate = (name: string, samples: readonly number[]): Figure => ({
      name,
      value: Math.round(median(samples)),
      unit: 'per second',
      aim: null,
      samples: samples.map(Math.round),
    });
    return [
      rate('durable_transitions', perSecond.ours),
      rate('bare_sqlite_transactions', perSecond.bare),
      ratio('transitions_to_bare_sqlite', perSecond.ours, perSecond.bare, '> 0.7'),
    ];
  } finally {
    store.close();
    bare.close();
    await rm(home, { recursive: true, force: true });
    await rm(bareHome, { recursive: true, force: true });
  }
}

/** Resident memory of a process in MiB. */
async function resident(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8');
  const kib = /^VmRSS:\s+(\d+) kB$/m.exec(status)?.[1];
  if (kib === undefined) throw new Error(`no memory figure of process ${pid}`);
  return Number(kib) / 1024;
}

const mebibytes = (name: string, value: number): Figure => ({
  name,
  value: Math.round(value * 10) / 10,
  unit: 'MiB',
  aim: null,
  samples: [value],
});

/** Attempts, windows that come and go, and many reads, in one Kernel. */
async function soak(full: string, say: (line: string) => void): Promise<readonly Figure[]> {
  const repo = await exampleRepo();
  const kernel = await open(full);
  try {
    await kernel.kernel.call('kernel/status', {});
    const idle = await resident(kernel.pid);
    const digest = await prepareContract(kernel.kernel, repo.contract);
    const script = await writeScript(repo.root, 'soak', [turns.view, turns.edit, turns.finish]);
    const halfway: number[] = [];
    for (let n = 0; n < soakAttempts; n += 1) {
      const window = await kernel.connect({ kind: 'window' });
      await window.call('evidence/subscribe', { lastSeenSeq: 0 });
      const { session } = await startSession(kernel.kernel, digest, script, { attempts: 1, control: false });
      await sessionAt(window, session.id, 'verified', verified);
      for (let reads = 0; reads < soakReads / soakAttempts; reads += 1) {
        await window.call('session/list', { limit: 100 });
      }
      window.dispose();
      if (n === Math.floor(soakAttempts / 2) - 1) halfway.push(await resident(kernel.pid));
    }
    const after = await resident(kernel.pid);
    say(
      `memory idle ${Math.round(idle)} MiB, half way ${Math.round(halfway[0] ?? 0)} MiB, after ${Math.round(after)} MiB`,
    );
    return [
      mebibytes('memory_idle_full_store', idle),
      mebibytes('memory_after_soak', after),
      ratio('memory_second_half_to_first', [after], halfway, '< 1.25'),
    ];
  } finally {
    kernel.kernel.dispose();
    await endKernel(full);
    await repo.dispose();
  }
}

/** One point of each kind; `npm run test:full -- crash` goes through all of them. */
const killed = [
  'append-in-transaction:5',
  'append-committed:5',
  'artefact-synced:2',
  'artefact-renamed:3',
  'engine-after-create',
  'engine-after-start',
  'engine-before-kill',
  'engine-after-remove',
  'frame-sent-write',
  'frame-answered-collect',
  'integration-applied',
  'undo-applied',
] as const;

async function killMatrix(say: (line: string) => void): Promise<readonly Figure[]> {
  const run = await crashRun();
  try {
    let held = 0;
    for (const point of killed) {
      const verdict = await run.kill(point, true);
      if (verdict.broken.length === 0) held += 1;
      say(
        `${point.padEnd(28)} ${verdict.broken.length === 0 ? verdict.outcome : `BROKEN: ${verdict.broken.join('; ')}`}`,
      );
    }
    const points = [...run.passages.keys()].length;
    return [
      { name: 'kill_points_named', value: points, unit: 'count', aim: null, samples: [points] },
      { name: 'kill_points_tried', value: killed.length, unit: 'count', aim: null, samples: [killed.length] },
      ratio('kill_points_invariants_held', [held], [killed.length], '> 0.999'),
    ];
  } finally {
    await run.dispose();
  }
}

export const lifecycle: Suite = {
  name: 'lifecycle',
  async run(say) {
    const bundles = await ownBundles();
    entry = bundles.entry;
    const { full, empty } = await homes(say);
    try {
      const figures: Figure[] = [];
      say(`cold start with and without history, ${startSamples} pairs`);
      const asked = await starts(full, empty, 'asked');
      figures.push(
        time('cold_start_empty', asked.empty),
        time('cold_start_100k_events', asked.full),
        ratio('cold_start_full_to_empty', asked.full, asked.empty, '< 1.3'),
      );
      say(`cold start after a kill, ${startSamples} pairs`);
      const afterKill = await starts(full, empty, 'killed');
      figures.push(
        time('cold_start_after_kill_100k_events', afterKill.full),
        ratio('cold_start_after_kill_full_to_empty', afterKill.full, afterKill.empty, '< 1.3'),
      );

      say(`durable transitions against bare better-sqlite3, ${appendRounds} rounds`);
      figures.push(...(await transitions()));

      say(`attach with ${crowd.sessions} sessions against a handful, ${attachSamples} pairs`);
      const few = await makeHome();
      const handful = openStore({ home: few, now: Date.now });
      fillStore(handful, { sessions: 40, events: 800 });
      handful.close();
      const large = await open(full);
      const small = await open(few);
      const root = '/home/someone/project-1';
      const one = async (kernel: KernelConnection): Promise<SessionId> => {
        const found = (await kernel.call('session/list', { root, limit: 1 })).sessions[0];
        if (found === undefined) throw new Error('no session');
        return found.id;
      };
      const ids = { large: await one(large.kernel), small: await one(small.kernel) };
      const samples = { large: [] as number[], small: [] as number[], list: [] as number[] };
      for (let n = -1; n < attachSamples; n += 1) {
        const smallMs = await attach(small, root, ids.small);
        const largeMs = await attach(large, root, ids.large);
        const listMs = await timed(async () => {
          const count = await wholeList(large.kernel);
          if (count !== crowd.sessions) throw new Error(`${count} sessions were listed`);
        });
        if (n < 0) continue;
        samples.small.push(smallMs);
        samples.large.push(largeMs);
        samples.list.push(listMs);
      }
      for (const kernel of [large, small]) kernel.kernel.dispose();
      await endKernel(full);
      await endKernel(few);
      await rm(few, { recursive: true, force: true });
      figures.push(
        time('attach_5000_sessions', samples.large),
        time('attach_40_sessions', samples.small),
        ratio('attach_5000_to_40', samples.large, samples.small, '< 1.5'),
        time('list_all_5000_sessions', samples.list),
      );

      say(`soak: ${soakAttempts} attempts, ${soakReads} lists`);
      figures.push(...(await soak(full, say)));
      say(`kill matrix, ${killed.length} points`);
      figures.push(...(await killMatrix(say)));
      return figures;
    } finally {
      for (const home of [full, empty]) {
        await endKernel(home);
        await rm(home, { recursive: true, force: true });
      }
      await bundles.dispose();
    }
  },
};
