import type { TestSummary } from '../../protocol/contract.ts';
import type { TestRunner } from './test-runner.ts';

/** Names beyond these bounds are not kept: then only the counts are compared. */
const maxNames = 2000;
const maxNameLength = 300;
/** Of more lines only the last ones are read: a summary fits into them, and reading stays a matter of milliseconds. */
const maxLines = 100_000;

type Counts = Omit<TestSummary, 'runner' | 'passing'>;

interface Reading {
  readonly counts: Counts;
  readonly passing: readonly string[] | null;
}

/**
 * The closing summary of a known runner, or null when the output does not *end* with one. An earlier block that looks
 * like a summary never counts: what a program printed before it was cut short says nothing. The text is hostile; every
 * pattern is anchored and linear, and numbers have at most seven digits.
 */
export function readSummary(runner: TestRunner, output: Uint8Array): TestSummary | null {
  const all = linesOf(output);
  const cut = all.length > maxLines;
  const reading = readers[runner](cut ? all.slice(-maxLines) : all);
  if (reading === null) return null;
  const { counts } = reading;
  const names = cut || reading.passing === null ? null : keepNames(reading.passing, counts.passed);
  return { runner, ...counts, passing: names };
}

const readers: Readonly<Record<TestRunner, (lines: readonly string[]) => Reading | null>> = {
  unittest: readUnittest,
  pytest: readPytest,
  node: readNode,
  vitest: readVitest,
  jest: readJest,
  go: readGo,
  cargo: readCargo,
};

// Escape sequences that colour or move: CSI, and OSC up to its end.
// eslint-disable-next-line no-control-regex -- these are the characters that are looked for
const escapes = /\u001B(?:\[[0-9;?]*[ -/]*[@-~]|\][^\u0007\u001B]*(?:\u0007|\u001B\\)|[@-Z\\^_])/g;

/** Lines without colour and without the blank ones at the end. */
function linesOf(output: Uint8Array): string[] {
  const text = Buffer.from(output.buffer, output.byteOffset, output.byteLength).toString('utf8');
  const lines = text.replace(escapes, '').replaceAll('\r\n', '\n').split('\n');
  while (lines.length > 0 && (lines.at(-1) ?? '').trim() === '') lines.pop();
  return lines;
}

/** Two tests may have one name: the second gets a number, so that sets can be compared. */
function keepNames(names: readonly string[], passed: number): string[] | null {
  // Where the list does not agree with the count, output came in between: the list is not to be trusted.
  if (names.length !== passed || names.length > maxNames) return null;
  const seen = new Map<string, number>();
  const kept: string[] = [];
  for (const name of names) {
    if (name.length > maxNameLength) return null;
    const times = (seen.get(name) ?? 0) + 1;
    seen.set(name, times);
    kept.push(times === 1 ? name : `${name} (${times})`);
  }
  return kept.toSorted();
}

function count(text: string | undefined): number {
  return text === undefined ? 0 : Number(text);
}

/** `failures=1, errors=2` or `1 failed, 2 passed` → numbers by word. Null when anything else stands there. */
function countsIn(text: string, separator: RegExp, item: RegExp): Map<string, number> | null {
  const found = new Map<string, number>();
  for (const part of text.split(separator)) {
    const match = item.exec(part.trim());
    const [, a, b] = match ?? [];
    if (a === undefined || b === undefined) return null;
    const [word, number] = /^\d/.test(a) ? [b, a] : [a, b];
    if (found.has(word)) return null;
    found.set(word, Number(number));
  }
  return found;
}

function readUnittest(lines: readonly string[]): Reading | null {
  const closing = /^(OK|FAILED|NO TESTS RAN)(?: \(([^()]{1,200})\))?$/.exec(lines.at(-1) ?? '');
  const ran = /^Ran (\d{1,7}) tests? in \d{1,7}\.\d{1,6}s$/.exec(lines.at(-3) ?? '');
  if (closing === null || ran === null || lines.at(-2) !== '' || !/^-{70}$/.test(lines.at(-4) ?? '')) return null;
  const details =
    closing[2] === undefined ? new Map<string, number>() : countsIn(closing[2], /, /, /^([a-z ]+)=(\d{1,7})$/);
  if (details === null) return null;
  const get = (word: string): number => details.get(word) ?? 0;
  const total = count(ran[1]);
  const failed = get('failures') + get('errors') + get('unexpected successes');
  if ((closing[1] === 'OK') !== (failed === 0) && closing[1] !== 'NO TESTS RAN') return null;
  const skipped = Math.min(total, get('skipped') + get('expected failures'));
  const passing = unittestNames(lines);
  // Sub-tests fail one by one: they can be more than the tests. What passed is then known by name, else by the rest.
  const passed = failed > 0 && passing !== null ? passing.length : Math.max(0, total - failed - skipped);
  return { counts: { total, passed, failed, skipped }, passing };
}

/** With `-v`: `name (where) ... ok`, the name alone before a doc string, or the verdict after the test's own output. */
function unittestNames(lines: readonly string[]): string[] | null {
  const names: string[] = [];
  let verbose = false;
  let open: string | undefined;
  for (const line of lines) {
    if (/^={70}$/.test(line)) break;
    const start = /^(\w{1,200} \([\w.<>]{1,200}\))(?: \.\.\. (.*))?$/.exec(line);
    if (start !== null) {
      const verdict = start[2];
      if (verdict !== undefined) verbose = true;
      open = start[1];
      if (verdict === 'ok' && open !== undefined) names.push(open);
      if (verdict !== undefined && isVerdict(verdict)) open = undefined;
    } else if (open !== undefined) {
      const documented = / \.\.\. (ok|FAIL|ERROR|skipped .*|expected failure|unexpected success)$/.exec(line);
      const verdict = documented?.[1] ?? line;
      if (documented !== null) verbose = true;
      if (verdict === 'ok') names.push(open);
      if (isVerdict(verdict)) open = undefined;
    }
  }
  return verbose ? names : null;
}

function isVerdict(text: string): boolean {
  return /^(?:ok|FAIL|ERROR|expected failure|unexpected success|skipped\b.*)$/.test(text);
}

function readPytest(lines: readonly string[]): Reading | null {
  const closing = /^(?:=+ )?([a-z0-9, ]{1,200}) in \d{1,7}\.\d{1,3}s(?: \([\d:, days]{1,40}\))?(?: =+)?$/.exec(
    lines.at(-1) ?? '',
  );
  if (closing?.[1] === undefined) return null;
  if (closing[1] === 'no tests ran') return { counts: { total: 0, passed: 0, failed: 0, skipped: 0 }, passing: null };
  const found = countsIn(
    closing[1],
    /, /,
    /^(\d{1,7}) (failed|passed|skipped|deselected|xfailed|xpassed|warnings?|errors?|rerun|subtests passed|subtests failed|subtests skipped)$/,
  );
  if (found === null) return null;
  const get = (word: string): number => found.get(word) ?? 0;
  const passed = get('passed') + get('xpassed');
  const failed = get('failed') + get('error') + get('errors') + get('subtests failed');
  const skipped = get('skipped') + get('xfailed');
  const names: string[] = [];
  for (const line of lines) {
    const verbose = /^(\S.{0,400}?) (?:PASSED|XPASS)(?: +\[ *\d{1,3}%\])?$/.exec(line)?.[1];
    if (verbose?.includes('::') === true) names.push(verbose);
  }
  if (names.length === 0) {
    for (const line of lines) {
      const listed = /^(?:PASSED|XPASS) (\S.{0,400})$/.exec(line)?.[1];
      if (listed?.includes('::') === true) names.push(listed);
    }
  }
  return {
    counts: { total: passed + failed + skipped, passed, failed, skipped },
    passing: names.length > 0 ? names : null,
  };
}

const nodeCounters = ['tests', 'suites', 'pass', 'fail', 'cancelled', 'skipped', 'todo', 'duration_ms'] as const;

function readNode(lines: readonly string[]): Reading | null {
  const tap = nodeBlock(lines, lines.length - nodeCounters.length, '#');
  if (tap !== null) return { counts: tap, passing: tapNames(lines) };
  // The spec reporter lists what failed once more after its counters; nothing may follow them otherwise.
  const last = lines.findLastIndex((line) => line.startsWith('ℹ duration_ms '));
  const spec = last < 0 ? null : nodeBlock(lines, last + 1 - nodeCounters.length, 'ℹ');
  if (spec === null) return null;
  const after = lines.slice(last + 1).find((line) => line.trim() !== '');
  if (after !== undefined && !(spec.failed > 0 && after === '✖ failing tests:')) return null;
  return { counts: spec, passing: specNames(lines.slice(0, last), spec.passed) };
}

function nodeBlock(lines: readonly string[], start: number, mark: '#' | 'ℹ'): Counts | null {
  if (start < 0) return null;
  const values = new Map<string, number>();
  for (const [n, word] of nodeCounters.entries()) {
    const match = /^(.) ([a-z_]+) (\d{1,9}(?:\.\d{1,9})?)$/.exec(lines[start + n] ?? '');
    if (match?.[1] !== mark || match[2] !== word) return null;
    values.set(word, Number(match[3]));
  }
  const get = (word: (typeof nodeCounters)[number]): number => values.get(word) ?? 0;
  const whole = nodeCounters.every((word) => word === 'duration_ms' || Number.isInteger(get(word)));
  if (!whole) return null;
  return {
    total: get('tests'),
    passed: get('pass'),
    failed: get('fail') + get('cancelled'),
    skipped: get('skipped') + get('todo'),
  };
}

/**
 * Tests of a TAP stream by their path of names; suites and what was skipped are left out. Null where a name is too long
 * to be kept: each test below it would hold a copy.
 */
function tapNames(lines: readonly string[]): string[] | null {
  const names: string[] = [];
  const path: string[] = [];
  for (const [n, line] of lines.entries()) {
    const heading = /^( {0,80})# Subtest: (.*)$/.exec(line);
    if (heading?.[1] !== undefined && heading[2] !== undefined) {
      if (heading[2].length > maxNameLength) return null;
      path.length = Math.min(path.length, heading[1].length / 4);
      path.push(heading[2]);
      continue;
    }
    const result = /^( {0,80})ok \d{1,7} - (.*)$/.exec(line);
    if (result?.[1] === undefined || result[2] === undefined) continue;
    if (/ # (?:SKIP|TODO)\b/.test(result[2])) continue;
    // The result's own block of properties follows it and names its type.
    let suite = false;
    if ((lines[n + 1] ?? '').trim() === '---') {
      for (let k = n + 2; k < Math.min(lines.length, n + 12) && (lines[k] ?? '').trim() !== '...'; k += 1) {
        if ((lines[k] ?? '').trim() === "type: 'suite'") suite = true;
      }
    }
    if (!suite) names.push([...path.slice(0, result[1].length / 4), result[2]].join(' > '));
  }
  return names;
}

/** The spec reporter draws suites like tests that have sub-tests: the count says which reading is right. */
function specNames(lines: readonly string[], passed: number): string[] | null {
  const all: string[] = [];
  const leaves: string[] = [];
  const path: string[] = [];
  for (const line of lines) {
    const match = /^((?: {2}){0,40})([▶✔]) (.*?)(?: \(\d{1,9}(?:\.\d{1,9})?ms\))?( # (?:SKIP|TODO).*)?$/.exec(line);
    if (match?.[1] === undefined || match[3] === undefined) continue;
    if (match[3].length > maxNameLength) return null;
    const depth = match[1].length / 2;
    if (match[2] === '▶') {
      path.length = Math.min(path.length, depth);
      path.push(match[3]);
      continue;
    }
    if (match[4] !== undefined) continue;
    const name = [...path.slice(0, depth), match[3]].join(' > ');
    all.push(name);
    if (path[depth] !== match[3]) leaves.push(name);
    path.length = Math.min(path.length, depth);
  }
  return leaves.length === passed ? leaves : all.length === passed ? all : null;
}

function readVitest(lines: readonly string[]): Reading | null {
  if (!/^ {1,6}Duration {2}\S/.test(lines.at(-1) ?? '')) return null;
  const block = lines.slice(-8);
  const tests = block.findLast((line) => /^ {1,8}Tests {2}/.test(line));
  const files = block.findLast((line) => /^ {0,4}Test Files {2}/.test(line));
  if (tests === undefined || files === undefined) return null;
  const failedFiles = /\b(\d{1,7}) failed\b/.exec(files)?.[1];
  const errors = block.findLast((line) => /^ {1,8}Errors {2}/.test(line));
  const failedMore = Math.max(count(/\b(\d{1,7}) errors?\b/.exec(errors ?? '')?.[1]), 0);
  const body = /^ {1,8}Tests {2}([^()]{1,200})\((\d{1,7})\)$/.exec(tests);
  if (body?.[1] === undefined) {
    if (tests.trim() !== 'Tests  no tests') return null;
    const failed = count(failedFiles) + failedMore;
    return { counts: { total: failed, passed: 0, failed, skipped: 0 }, passing: null };
  }
  const found = countsIn(body[1].trim(), / \| /, /^(\d{1,7}) (failed|passed|skipped|todo|expected fail)$/);
  if (found === null) return null;
  const get = (word: string): number => found.get(word) ?? 0;
  // A file that failed outside of its tests, or an unhandled error, is no passed run whatever the tests say.
  const outside = get('failed') === 0 ? count(failedFiles) : 0;
  const names: string[] = [];
  for (const line of lines) {
    const name = /^ ✓ (\S.{0,400}?)(?: \d{1,9}ms)?$/.exec(line)?.[1];
    if (name !== undefined && name.includes(' > ')) names.push(name);
  }
  return {
    counts: {
      total: count(body[2]),
      passed: get('passed') + get('expected fail'),
      failed: get('failed') + outside + failedMore,
      skipped: get('skipped') + get('todo'),
    },
    passing: names.length > 0 ? names : null,
  };
}

function readJest(lines: readonly string[]): Reading | null {
  const end = (lines.at(-1) ?? '').startsWith('Ran all test suites') ? lines.length - 2 : lines.length - 1;
  if (!/^Time: +\S/.test(lines[end] ?? '')) return null;
  const block = lines.slice(Math.max(0, end - 4), end);
  const suites = /^Test Suites: (.{1,200})$/.exec(
    block.findLast((line) => line.startsWith('Test Suites: ')) ?? '',
  )?.[1];
  const tests = /^Tests: +(\S.{0,200})$/.exec(block.findLast((line) => line.startsWith('Tests: ')) ?? '')?.[1];
  if (suites === undefined || tests === undefined) return null;
  const item = /^(\d{1,7}) (failed|passed|skipped|todo|pending|total|obsolete)$/;
  const inSuites = countsIn(suites.replace(/ of \d{1,7} total$/, ' total'), /, /, item);
  const found = countsIn(tests, /, /, item);
  if (inSuites === null || found === null) return null;
  const get = (word: string): number => found.get(word) ?? 0;
  const outside = get('failed') === 0 ? (inSuites.get('failed') ?? 0) : 0;
  const names: string[] = [];
  let file = '';
  for (const line of lines) {
    file = /^(?:PASS|FAIL) (\S.{0,400}?)(?: \([\d.]{1,9} m?s\))?$/.exec(line)?.[1] ?? file;
    const name = /^\s{1,80}✓ (.{1,400}?)(?: \(\d{1,9} m?s\))?$/.exec(line)?.[1];
    if (name !== undefined) names.push(`${file} > ${name}`);
  }
  return {
    counts: {
      total: get('total'),
      passed: get('passed'),
      failed: get('failed') + outside,
      skipped: get('skipped') + get('todo') + get('pending'),
    },
    passing: names.length > 0 ? names : null,
  };
}

function readGo(lines: readonly string[]): Reading | null {
  const last = lines.at(-1) ?? '';
  return last.startsWith('{') ? readGoJson(lines) : readGoText(lines, last);
}

function readGoText(lines: readonly string[], last: string): Reading | null {
  if (!/^(?:ok {2}\t|FAIL\t|FAIL$|\? {3}\t)/.test(last)) return null;
  const passing: string[] = [];
  let open: string[] = [];
  let failed = 0;
  let skipped = 0;
  for (const line of lines) {
    const test = /^ {0,80}--- (PASS|FAIL|SKIP): (\S{1,400}) \(\d{1,9}\.\d{1,3}s\)$/.exec(line);
    if (test?.[2] !== undefined) {
      if (test[1] === 'PASS') open.push(test[2]);
      else if (test[1] === 'FAIL') failed += 1;
      else skipped += 1;
      continue;
    }
    const ended = /^(ok {2}|FAIL|\? {3})\t(\S{1,400})(?:\t|\s|$)/.exec(line);
    if (ended?.[2] === undefined) continue;
    // A package that failed without a failing test did not build, panicked or left.
    if (ended[1] === 'FAIL' && failed === 0) failed += 1;
    passing.push(...open.map((name) => `${ended[2]} ${name}`));
    open = [];
  }
  // Tests that no package's line follows ran in a process that did not reach its end.
  if (open.length > 0) failed += 1;
  if (last === 'FAIL' && failed === 0) failed = 1;
  const passed = passing.length;
  return { counts: { total: passed + failed + skipped, passed, failed, skipped }, passing };
}

function readGoJson(lines: readonly string[]): Reading | null {
  const passing: string[] = [];
  let failed = 0;
  let skipped = 0;
  let closed: string | undefined;
  for (const line of lines) {
    if (!line.startsWith('{')) {
      closed = undefined;
      continue;
    }
    let event: unknown;
    try {
      event = JSON.parse(line);
    } catch {
      return null;
    }
    if (typeof event !== 'object' || event === null) return null;
    const read = (key: string): string | undefined => {
      const value: unknown = Object.hasOwn(event, key) ? (event as Record<string, unknown>)[key] : undefined;
      return typeof value === 'string' ? value : undefined;
    };
    const action = read('Action');
    const test = read('Test');
    closed = undefined;
    if (action !== 'pass' && action !== 'fail' && action !== 'skip') continue;
    if (test === undefined) {
      closed = action;
      if (action === 'fail' && failed === 0) failed += 1;
    } else if (action === 'pass') passing.push(`${read('Package') ?? ''} ${test}`);
    else if (action === 'fail') failed += 1;
    else skipped += 1;
  }
  if (closed === undefined) return null;
  const passed = passing.length;
  return { counts: { total: passed + failed + skipped, passed, failed, skipped }, passing };
}

function readCargo(lines: readonly string[]): Reading | null {
  const result =
    /^test result: (ok|FAILED)\. (\d{1,7}) passed; (\d{1,7}) failed; (\d{1,7}) ignored; \d{1,7} measured; \d{1,7} filtered out; finished in \d{1,7}\.\d{1,3}s$/;
  let passed = 0;
  let failed = 0;
  let skipped = 0;
  let last = -1;
  const names: string[] = [];
  let target = '';
  for (const [n, line] of lines.entries()) {
    target =
      /^ +(?:Running (?:unittests )?(\S{1,300})|Doc-tests (\S{1,300}))/.exec(line)?.slice(1).find(Boolean) ?? target;
    const name = /^test (\S.{0,400}) \.\.\. ok$/.exec(line)?.[1];
    if (name !== undefined) names.push(`${target} ${name}`);
    const match = result.exec(line);
    if (match === null) continue;
    last = n;
    passed += count(match[2]);
    failed += count(match[3]);
    skipped += count(match[4]);
    if ((match[1] === 'ok') !== (match[3] === '0')) return null;
  }
  if (last < 0) return null;
  const after = lines.slice(last + 1).filter((line) => line.trim() !== '');
  if (after.length > 0 && !(failed > 0 && after.every((line) => /^(?:error: | {4}`)/.test(line)))) return null;
  return { counts: { total: passed + failed + skipped, passed, failed, skipped }, passing: names };
}
