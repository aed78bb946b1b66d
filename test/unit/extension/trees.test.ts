import { describe, expect, test } from 'vitest';
import { ScopeReason, type FileScope } from '../../../src/protocol/contract.ts';
import type { RelPath } from '../../../src/protocol/primitives.ts';
import { attemptOutcomes, attemptPhases } from '../../../src/protocol/attempt.ts';
import { sessionStates } from '../../../src/protocol/views.ts';
import { possibleActions } from '../../../src/extension/possible-actions.ts';
import { statusLine } from '../../../src/extension/status-line.ts';
import { healthTree } from '../../../src/extension/trees/health-tree.ts';
import { belongsTo, sessionTree } from '../../../src/extension/trees/session-tree.ts';
import { modelsTree } from '../../../src/extension/trees/models-tree.ts';
import { treeChanges } from '../../../src/extension/trees/tree-changes.ts';
import { node, type TreeNode } from '../../../src/extension/trees/tree-node.ts';
import { viewMessage } from '../../../src/extension/view-message.ts';
import type { WindowState } from '../../../src/extension/window-state.ts';
import { ids } from '../../fixtures/session.ts';
import {
  attemptView,
  candidateView,
  everyRow,
  kernelStatus,
  rowOf,
  sessionView,
  verificationView,
  windowState,
  words,
} from '../../fixtures/window-state.ts';

const rows = (state: WindowState) => sessionTree(state, ['/repo'], words);
const connected = { kind: 'connected', updatePending: false, catchingUp: false, answering: true } as const;
const fault = { code: 'NoKernel', message: '', next: '', details: { link: 'ended' } } as const;
const lost = { kind: 'lost', fault, retrying: true } as const;
const refused = { code: 'Internal', message: 'TypeError: x', next: '', details: {} } as const;
const full = {
  state: 'unavailable',
  code: 'disk_full',
  detail: 'no space left',
  next: 'Free space.',
  observedAt: 60,
  artefactBytes: 0,
  events: 9,
} as const;

describe('the Sessions view', () => {
  test('a long request of this window is a row that says how far it is', () => {
    const operation = { id: 1, label: 'Preparing', detail: 'Python packages · 45 %', startedAt: 5, cancellable: true };
    const row = (cancellable: boolean): TreeNode =>
      rowOf(rows({ ...windowState(sessionView()), operations: [{ ...operation, cancellable }] }), 'Preparing');
    expect(row(true)).toMatchObject({
      label: 'Preparing',
      description: 'Python packages · 45 %',
      target: { kind: 'operation', id: 1 },
      context: ';operation;endable;',
    });
    // What has no way back has no button to cancel it; the words of a session's own are not its.
    expect(row(false).context).toBe(';operation;');
  });

  test('a candidate that passed can be accepted, and the row says who spoke', () => {
    const tree = rows(windowState(sessionView()));
    expect(rowOf(tree, 'UTC').description).toContain('to review');
    expect(rowOf(tree, 'UTC').description).toContain('synthetic');
    expect(rowOf(tree, 'Candidate').context).toContain(';acceptable;');
    expect(rowOf(tree, 'Settlement').description).toContain('confirmed');
  });

  test.each(['failed', 'incomplete', 'flaky', 'unverified'] as const)('one whose verdict is %s cannot', (verdict) => {
    const result = verdict === 'incomplete' ? 'incomplete' : 'failed';
    const candidate = candidateView({ verdict, verifications: [verificationView(result)] });
    expect(rowOf(rows(windowState(sessionView({ candidates: [candidate] }))), 'Candidate').context).not.toContain(
      'acceptable',
    );
  });

  test('a flaky candidate cannot be accepted although one run passed', () => {
    const candidate = candidateView({ verdict: 'flaky' });
    expect(rowOf(rows(windowState(sessionView({ candidates: [candidate] }))), 'Candidate').context).not.toContain(
      'acceptable',
    );
  });

  test('bytes of an attempt that was cancelled are a diagnostic, and the session says how it ended', () => {
    const session = sessionView({
      attempts: [attemptView({ outcome: { kind: 'cancelled', phase: 'running', reason: 'window_close', detail: '' } })],
      candidates: [candidateView({ eligible: false, verifications: [], verdict: 'unverified' })],
    });
    const tree = rows(windowState(session));
    expect(rowOf(tree, 'Candidate').description).toMatch(/^diagnostic only, not eligible · [0-9a-f]{12}$/);
    expect(rowOf(tree, 'UTC').description).toContain('cancelled');
  });

  test.each([
    ['window_close', 'Its window closed'],
    ['requests', 'All its requests were used'],
    ['container_stopped', 'The container had stopped'],
    ['scope_unavailable', 'What its contract lets change could not be compared'],
    ['model_said_so', 'Model said so'],
  ])('why an attempt ended, %s, is said in words', (reason, said) => {
    const outcome = { kind: 'lost', phase: 'running', reason, detail: '' } as const;
    const tree = rows(windowState(sessionView({ attempts: [attemptView({ outcome })] })));
    expect(rowOf(tree, said)).toBeDefined();
  });

  test('without a connection nothing runs, spins or can be acted upon', () => {
    const running = sessionView({
      state: 'running',
      candidates: [],
      attempts: [attemptView({ phase: 'running', outcome: null, settlement: null })],
    });
    for (const state of [
      windowState(running, { connection: lost, controls: new Set([ids.session]) }),
      windowState(running, { connection: { ...connected, catchingUp: true } }),
      windowState(running, { connection: { ...connected, answering: false } }),
    ]) {
      for (const row of everyRow(rows(state))) {
        expect(row.current, row.label).toBe(false);
        expect(row.icon?.id ?? '', row.label).not.toContain('~spin');
        expect(row.context, row.label).toBe('');
      }
      expect(rowOf(rows(state), 'Attempt 1').description).toMatch(/^last seen: running/);
      expect(rowOf(rows(state), 'UTC').description).toMatch(/^last seen: /);
    }
  });

  test('one whose refresh was refused is not current, says why, and nothing can be started from it', () => {
    const unrefreshed = new Map([[ids.session, refused]] as const);
    const state = windowState(sessionView(), { unrefreshed, controls: new Set([ids.session]) });
    const tree = rows(state);
    expect(rowOf(tree, 'UTC')).toMatchObject({ current: false, context: '' });
    expect(rowOf(tree, 'UTC').spoken).toMatch(/^not current: UTC/);
    expect(rowOf(tree, 'Not current').description).toBe(
      'Something happened that Escrow did not expect. The log says what.',
    );
    expect(possibleActions(state)).not.toContain(true);
    expect(statusLine(state, words).text).toContain('not current');
    // Another session is not touched by it.
    expect(rowOf(rows(windowState(sessionView(), { unrefreshed: new Map([['list', refused]]) })), 'UTC').current).toBe(
      true,
    );
  });

  test('a workspace whose listing was refused is not current, its session is', () => {
    const unrefreshed = new Map([[`workspace:${ids.session}`, refused]] as const);
    const tree = rows(windowState(sessionView(), { unrefreshed }));
    expect(rowOf(tree, 'Workspace').current).toBe(false);
    expect(rowOf(tree, 'UTC').current).toBe(true);
    // When the connection goes as well, what was live is said to be the past once.
    const source = { kind: 'live', attempt: ids.attempt, observedAt: 50 } as const;
    const workspaces = new Map([[ids.session, { value: { source, files: [] }, at: 60 }]]);
    const both = rows(windowState(sessionView(), { unrefreshed, workspaces, connection: lost }));
    expect(rowOf(both, 'Workspace').description).toBe('last seen: live, seen @50');
  });

  test('where nothing can be recorded, work is not shown as running; what had ended before is as it was', () => {
    const status = { value: kernelStatus({ storage: full }), at: 60 };
    const running = sessionView({
      state: 'running',
      candidates: [],
      attempts: [attemptView({ phase: 'running', outcome: null, settlement: null })],
    });
    const state = windowState(running, { status });
    expect(rowOf(rows(state), 'Attempt 1').description).toMatch(/^last seen: running/);
    expect(rowOf(rows(state), 'Not current').description).toContain('Nothing can be recorded now');
    expect(viewMessage(state, words, 'sessions')).toContain('no space is left on the disk that holds /state');
    expect(statusLine(state, words).text).not.toContain('spin');
    expect(rowOf(rows(windowState(sessionView(), { status })), 'UTC').current).toBe(true);
  });

  test('a step of the settlement that could not be observed says why, once', () => {
    const settlement = {
      trigger: 'kernel_restart',
      requestedAt: 20,
      settledAt: 30,
      steps: [
        { step: 'quiesce', at: 21, observed: false, facts: { reason: 'supervisor_silent' } },
        { step: 'collect', at: 22, observed: false, facts: { state: 'none', reason: 'container_absent' } },
        { step: 'stop', at: 23, observed: true, facts: { absent: true } },
      ],
      confirmed: true,
      unknown: ['quiesce', 'collect', 'bytes'],
      supervised: null,
    } as const;
    const tree = rows(
      windowState(
        sessionView({
          attempts: [
            attemptView({
              settlement: { ...settlement, steps: [...settlement.steps], unknown: [...settlement.unknown] },
            }),
          ],
        }),
      ),
    );
    expect(rowOf(tree, 'No process left').description).toBe('could not be observed: the sandbox did not answer');
    expect(rowOf(tree, 'Bytes collected').description).toBe('could not be observed: the container was gone');
    const unknown = everyRow(tree).flatMap(({ label }) => (label.startsWith('Not known') ? [label] : []));
    expect(unknown).toEqual(['Not known: what it had written']);
  });

  test('only the controller is offered to cancel', () => {
    const running = sessionView({
      state: 'running',
      candidates: [],
      attempts: [attemptView({ phase: 'running', outcome: null })],
    });
    expect(rowOf(rows(windowState(running)), 'UTC').context).not.toContain('cancellable');
    const mine = windowState(running, { controls: new Set([ids.session]) });
    expect(rowOf(rows(mine), 'UTC').context).toContain(';cancellable;');
    expect(rowOf(rows(mine), 'Control').description).toBe('nobody');
  });

  test('an end that could not be observed says what would resolve it, and offers a person’s word', () => {
    const session = sessionView({
      state: 'settling',
      attempts: [
        attemptView({
          phase: 'cancellation_pending',
          outcome: null,
          pending: { since: 70, blockedIn: 'stopping', waitingFor: 'container_engine: connect ENOENT /run/x.sock' },
        }),
      ],
      candidates: [],
    });
    const tree = rows(windowState(session));
    expect(rowOf(tree, 'UTC').icon?.id).toBe('warning');
    expect(rowOf(tree, 'Stop not confirmed').description).toBe('waits for the container engine to answer');
    expect(rowOf(tree, 'Stop not confirmed').context).toContain(';pending;');
  });

  test('a call and what came of it are one row; one that still runs is a row too', () => {
    const item = { at: 1, ok: null };
    const session = sessionView({
      attempts: [
        attemptView({
          activity: [
            { ...item, n: 1, kind: 'tool', title: 'view /workspace/src/a.py', text: 'args' },
            { ...item, n: 2, kind: 'result', title: 'view /workspace/src/a.py', text: 'bytes', ok: true },
            { ...item, n: 3, kind: 'tool', title: 'terminal curl (printed as text)', text: 'curl' },
            { ...item, n: 4, kind: 'denied', title: 'terminal curl', text: 'not permitted', ok: false },
            { ...item, n: 5, kind: 'tool', title: 'terminal true', text: 'true' },
          ],
        }),
      ],
    });
    const activity = rowOf(rows(windowState(session)), 'Activity');
    const shown = activity.children === 'load' ? [] : activity.children;
    expect(shown.map(({ label, icon }) => [label, icon?.id])).toEqual([
      ['view src/a.py', 'pass'],
      ['terminal curl (printed as text)', 'circle-slash'],
      ['terminal true', 'tools'],
    ]);
    expect(shown[0]?.target).toMatchObject({ kind: 'text', text: 'args\n\nbytes' });
    expect(shown[1]?.spoken).toContain('denied');
    expect(activity.description).toBe('3');
  });

  test('a verification that was spoiled by no check of it says what did', () => {
    const run = { ...verificationView('failed'), reasons: ['files-changed: src/usage.py'] };
    const tree = rows(
      windowState(sessionView({ candidates: [candidateView({ verdict: 'failed', verifications: [run] })] })),
    );
    expect(rowOf(tree, 'changed while the checks ran: src/usage.py').icon?.id).toBe('warning');
  });

  test('a verification says of each file whether it stayed within its symbols, and where not', () => {
    const scope = {
      path: 'src/usage.py' as RelPath,
      symbols: [
        { name: 'timestamp', exists: true },
        { name: 'helper', exists: false },
      ],
      line: 3,
      found: 'x = 2',
      expected: 'x = 1',
    };
    const row = (outcome: FileScope['outcome'], reason: FileScope['reason']): TreeNode => {
      const run = {
        ...verificationView('failed'),
        reasons: ['out-of-scope: src/usage.py (changed)'],
        scope: [{ ...scope, outcome, reason }],
      };
      const candidates = [candidateView({ verdict: 'failed', verifications: [run] })];
      const tree = rows(windowState(sessionView({ candidates })));
      // The scope says it better than its reason does.
      expect(everyRow(tree).some(({ label }) => label.startsWith('out of scope'))).toBe(false);
      return rowOf(tree, 'Scope of src/usage.py');
    };
    expect(row('outside', 'changed')).toMatchObject({
      description: 'outside of timestamp, new helper: line 3 is “x = 2”, it was “x = 1”',
      icon: { id: 'error' },
    });
    expect(row('inside', null)).toMatchObject({
      description: 'only timestamp, new helper changed',
      icon: { id: 'pass' },
    });
    expect(row('not-checked', null).icon?.id).toBe('warning');
    const words = new Set(ScopeReason.options.map((reason) => row('outside', reason).description));
    // Two reasons are one thing to a person.
    expect(words.size).toBe(ScopeReason.options.length - 1);
  });

  test('every state, phase and outcome has words of its own', () => {
    for (const state of sessionStates) {
      for (const phase of attemptPhases) {
        for (const kind of attemptOutcomes) {
          const session = sessionView({
            state,
            attempts: [attemptView({ phase, outcome: { kind, phase: 'running', reason: 'x', detail: 'y' } })],
            candidates: [],
          });
          for (const row of everyRow(rows(windowState(session)))) {
            expect(`${row.label} ${row.description}`).not.toMatch(/undefined|null|\{\d\}|NaN/);
          }
        }
      }
    }
  });

  test('hostile names stay in their row', () => {
    const session = sessionView({
      title: 'ok\u202e\n$(check)',
      attempts: [
        attemptView({ activity: [{ n: 1, at: 1, kind: 'message', title: '\u001b[2J', text: 'a\u200bb', ok: null }] }),
      ],
    });
    for (const row of everyRow(rows(windowState(session)))) {
      expect(`${row.label}${row.description}`).not.toMatch(/[\p{Cc}\p{Cf}]/u);
    }
  });

  test('sessions of other folders are kept apart', () => {
    const tree = sessionTree(windowState(sessionView()), ['/elsewhere'], words);
    expect(tree.map(({ id }) => id)).toEqual(['elsewhere']);
  });

  test('what an icon alone shows is read aloud', () => {
    const limit = { name: 'pids', wanted: '64', inside: '64', outside: '64' };
    const limits = [
      { ...limit, inForce: true },
      { ...limit, name: 'memory', wanted: String(2 * 1024 ** 3), inForce: false },
    ];
    const tree = rows(windowState(sessionView({ attempts: [attemptView({ limits })] })));
    expect(rowOf(tree, 'Processes').spoken).toBe('Processes, 64, in force');
    expect(rowOf(tree, 'Memory').spoken).toBe('Memory, 2.0 GiB, not in force');
    const health = healthTree(windowState(sessionView(), { status: { value: kernelStatus(), at: 60 } }), words);
    expect(rowOf(health, 'Container engine').spoken).toBe('Container engine, ok, docker, 20.10');
  });

  test('ids are unique, so that VS Code keeps what is expanded', () => {
    const all = everyRow(rows(windowState(sessionView()))).map(({ id }) => id);
    expect(new Set(all).size).toBe(all.length);
  });
});

test.each([
  ['/repo', ['/repo'], true],
  ['/repo', ['/repo/src'], true],
  ['/repo/sub', ['/repo'], true],
  ['/repo-two', ['/repo'], false],
  ['/repo', [], false],
])('a root %s and the folders %j', (root, folders, belongs) => {
  expect(belongsTo(root, folders)).toBe(belongs);
});

describe('what is drawn anew', () => {
  const base = windowState(sessionView());

  test('nothing when nothing changed', () => {
    expect(treeChanges(rows(base), rows({ ...base }))).toEqual({ kind: 'rows', ids: [] });
  });

  test('one row when only it changed', () => {
    const live = { attempt: ids.attempt, n: 3, state: 'thinking', sinceMs: 1000, text: 'a', chars: 1 } as const;
    const before = windowState(sessionView({ live }));
    const after = windowState(sessionView({ live: { ...live, chars: 2 } }));
    expect(treeChanges(rows(before), rows(after))).toEqual({ kind: 'rows', ids: [`${ids.attempt}/live`] });
  });

  test('the parent when a row came or went', () => {
    const after = windowState(sessionView({ candidates: [] }));
    const changes = treeChanges(rows(base), rows(after));
    expect(changes.kind === 'rows' && changes.ids).toContain(ids.session);
  });

  test('all roots when the first of them gets room for a twistie', () => {
    const leaf = (id: string) => node({ id, label: id });
    const opened = node({ id: 'a', label: 'a', children: [leaf('a/next')] });
    expect(treeChanges([leaf('a'), leaf('b')], [opened, leaf('b')])).toEqual({ kind: 'all' });
    expect(treeChanges([opened, leaf('b')], [opened, node({ id: 'b', label: 'b', description: 'new' })])).toEqual({
      kind: 'rows',
      ids: ['b'],
    });
  });

  test('everything when a root came, or when what is shown became the past', () => {
    expect(treeChanges([], rows(base))).toEqual({ kind: 'all' });
    expect(treeChanges(rows(base), rows({ ...base, connection: lost }))).toEqual({ kind: 'all' });
  });
});

describe('the Health view', () => {
  test('what is not well says what to do', () => {
    const engine = {
      state: 'unavailable',
      code: 'engine_not_reachable',
      detail: 'no socket',
      next: 'Start Docker.',
      observedAt: 60,
      name: null,
      version: null,
    } as const;
    const tree = healthTree(windowState(sessionView(), { status: { value: kernelStatus({ engine }), at: 60 } }), words);
    expect(rowOf(tree, 'Container engine').icon).toEqual({ id: 'error', tone: 'bad' });
    expect(rowOf(tree, 'Container engine').description).toBe('does not answer');
    expect(rowOf(tree, 'Container engine').spoken).toBe('Container engine, unavailable, does not answer');
    expect(rowOf(tree, 'Start Docker or Podman')).toMatchObject({
      tooltip: 'Start Docker.',
      command: 'escrow.kernel.doctor',
    });
  });

  test('an engine for inference that does not answer is not taken for one for containers', () => {
    const inference = {
      ...kernelStatus().inference,
      state: 'unavailable',
      code: 'engine_not_reachable',
      detail: 'ECONNREFUSED',
      next: 'Start Ollama, or name its host.',
    } as const;
    const tree = healthTree(
      windowState(sessionView(), { status: { value: kernelStatus({ inference }), at: 60 } }),
      words,
    );
    expect(rowOf(tree, 'Start Ollama').tooltip).toBe('Start Ollama, or name its host.');
  });

  test('an image that nobody could look for is not known, and is not offered to be made', () => {
    const health = { state: 'unavailable', detail: 'version: connect ENOENT', next: 'x', observedAt: 60 } as const;
    const view = (code: string) =>
      healthTree(
        windowState(sessionView(), {
          status: { value: kernelStatus({ image: { ...health, code, digest: null } }), at: 60 },
        }),
        words,
      );
    expect(rowOf(view('EngineUnavailable'), 'Sandbox image')).toMatchObject({
      description: 'not known',
      children: [],
      icon: { id: 'question' },
    });
    expect(rowOf(view('EngineUnavailable'), 'Sandbox image').context).not.toContain('prepare');
    expect(rowOf(view('EngineUnavailable'), 'Sandbox image').command).toBeNull();
    expect(rowOf(view('ImageUnavailable'), 'Sandbox image').command).toBe('escrow.image.list');
    expect(rowOf(view('ImageUnavailable'), 'Sandbox image').context).toContain(';prepare;');
    expect(rowOf(view('ImageUnavailable'), 'Prepare the sandbox image').command).toBe('escrow.image.prepare');
  });

  test('rows of a status that was refused are not current, and the view says why', () => {
    const unrefreshed = new Map([['status', refused]] as const);
    const state = windowState(sessionView(), { status: { value: kernelStatus(), at: 60 }, unrefreshed });
    expect(healthTree(state, words).every(({ current }) => !current)).toBe(true);
    expect(viewMessage(state, words, 'health')).toMatch(/^Not current: /);
    expect(viewMessage(state, words, 'sessions')).toBe('');
  });

  test('a lost Kernel is not shown as running', () => {
    const state = windowState(sessionView(), { status: { value: kernelStatus(), at: 60 }, connection: lost });
    expect(rowOf(healthTree(state, words), 'Kernel').description).toMatch(/^last seen: /);
  });
});

test('an engine that does not answer is not an engine without models', () => {
  const models = {
    models: [],
    silent: [{ engine: 'ollama', host: 'http://127.0.0.1:11434', code: 'refused', next: 'Start Ollama.' }],
  } as const;
  const tree = modelsTree(
    windowState(sessionView(), { models: { value: { ...models, models: [], silent: [...models.silent] }, at: 60 } }),
    words,
  );
  expect(rowOf(tree, 'Ollama does not answer').description).toBe('start it, or name its host in the settings');
});

describe('the status bar', () => {
  const text = (state: WindowState): string => statusLine(state, words).text;

  test('says what needs a person, first', () => {
    const pending = [{ session: ids.session, attempt: ids.attempt, waitingFor: 'x' }];
    const status = { value: kernelStatus({ pending }), at: 60 };
    expect(statusLine(windowState(sessionView(), { status }), words)).toMatchObject({ tone: 'warning' });
    expect(text(windowState(sessionView()))).toContain('1 to review');
  });

  test('never says that something runs when nobody knows', () => {
    const running = sessionView({ state: 'running' });
    expect(text(windowState(running))).toContain('spin');
    expect(text(windowState(running, { connection: lost }))).toBe('$(debug-disconnect) Escrow: not connected');
    const silent = windowState(running, { connection: { ...connected, answering: false } });
    expect(text(silent)).toBe('$(debug-disconnect) Escrow: no answer');
    expect(viewMessage(silent, words, 'health')).toMatch(/^The Kernel does not answer; last observed /);
  });

  test('speaks of the candidate on screen, and says why it cannot be decided about', () => {
    const state = windowState(sessionView());
    const said = (change: Parameters<typeof candidateView>[0], superseded = false) =>
      statusLine(state, words, { view: candidateView(change), superseded });
    expect(said({}).text).toContain('checks passed');
    expect(said({}, true)).toMatchObject({ text: '$(warning) Escrow: a newer candidate exists' });
    expect(said({ verdict: 'failed' })).toMatchObject({ text: '$(error) Escrow: cannot be accepted' });
    expect(said({ verdict: 'flaky' }).tooltip).toContain('passed and failed on the same bytes');
    expect(said({ verdict: 'unverified' }).tooltip).toContain('cannot be accepted yet');
    expect(said({ eligible: false, verdict: 'unverified' }).text).toContain('diagnostic only');
    const hidden = [{ path: 'a', unseen: [{ kind: 'byte-order-mark' }] }] as const;
    const view = candidateView();
    const hiding = windowState(sessionView(), { unseen: new Map([[view.digest, hidden]]) });
    expect(statusLine(hiding, words, { view, superseded: false })).toMatchObject({
      text: '$(eye-closed) Escrow: checks passed; the diff may hide changes',
      tone: 'warning',
    });
    const gone = windowState(sessionView(), { connection: lost });
    expect(statusLine(gone, words, { view: candidateView(), superseded: false }).text).toContain('not connected');
  });
});

describe('the palette', () => {
  const possible = (state: WindowState): readonly string[] =>
    Object.entries(possibleActions(state)).flatMap(([key, can]) => (can ? [key.replace('escrow.can.', '')] : []));

  test('lists what there is something to do with', () => {
    expect(possible(windowState(sessionView()))).toEqual(['attach', 'openCandidate', 'accept', 'reject', 'verify']);
    const mine = { controls: new Set([ids.session]) };
    expect(possible(windowState(sessionView({ state: 'running', candidates: [] }), mine))).toEqual([
      'cancel',
      'attach',
      'detach',
    ]);
    const spent = sessionView({ candidates: [], budget: { attempts: 2, used: 2 } });
    expect(possible(windowState(spent, mine))).toEqual(['attach', 'detach', 'extend', 'close']);
  });

  test('lists nothing to act on where what is shown is not current', () => {
    expect(possible(windowState(sessionView(), { connection: lost, controls: new Set([ids.session]) }))).toEqual([]);
  });
});
