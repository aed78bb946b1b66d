/**
 * What a model is shown of a check's output. It reads it again with every later request, so what says nothing of the
 * failure is left out and said to be; the whole output is kept as evidence. Pure functions over cleaned text; what no
 * known runner prints stays as it is.
 */

/** Characters of a line that is looked at: no runner's own line is longer, and hostile ones must not cost time. */
const lineMost = 1000;
/** Lines of the block of figures that TAP adds to a test. */
const blockMost = 40;
const is = (pattern: RegExp, line: string): boolean => line.length <= lineMost && pattern.test(line);
const begins = (pattern: RegExp, line: string): boolean => pattern.test(line.slice(0, lineMost));

/** Lines by which runners say that one test passed: unittest and cargo, pytest, Go, TAP, and those that print a tick. */
const passedLine =
  /^(?:\S.* \.\.\. ok|\S+::\S+ PASSED(?:\s+\[\s*\d+%\])?|\s*--- PASS: .*|\s*ok \d+ - .*|\s*[✓✔√] .*)$/u;

/** A frame of JavaScript's runtime in a stack: never where the fault is. */
const runtimeFrame = /^\s+(?:at )?\S.*\(node:[\w/.-]+:\d+:\d+\)(?: \{)?$/;

/**
 * Output without what only decorates it: lines that underline the one above with three or more carets and tildes (a
 * single caret points, and stays), and rules of `=`, `-`, `_`, `*` or `#`, ten or more characters long.
 */
export function plainer(text: string): string {
  return text
    .split('\n')
    .filter((line) => !/^\s*(?=[~^]{3,}\s*$)[~^]*\^/.test(line) && !/^\s*([=\-_*#])\1{9,}\s*$/.test(line))
    .join('\n');
}

/** Lines of a passing check that are shown: the runner's verdict comes last. */
const passingLines = 6;

/**
 * The output of a failing check, without tests that passed, statuses that headings repeat, frames of a runtime, and the
 * line by which Python announces frames.
 */
export function failingOutput(text: string): string {
  const lines = plainer(text)
    .split('\n')
    .filter((line) => !is(runtimeFrame, line) && line !== 'Traceback (most recent call last):');
  return withoutPassed(withoutRepeated(lines)).join('\n').trim();
}

/** The end of a passing check's output: what each test was called is of no use to whoever wants to go on. */
export function passingOutput(text: string): string {
  const lines = withoutPassed(plainer(text).split('\n'));
  const left = lines.length - passingLines;
  // Not for a line or two: the note would be longer than they.
  return left < 4
    ? lines.join('\n').trim()
    : `[${left} lines of a passing check left out]\n${lines.slice(left).join('\n').trimStart()}`;
}

/** Without the lines of tests that passed, whose number is said in place of the first. A single one stays. */
function withoutPassed(lines: readonly string[]): readonly string[] {
  const passed = lines.filter((line) => is(passedLine, line)).length;
  if (passed < 2) return lines;
  const kept: string[] = [];
  let said = false;
  for (let at = 0; at < lines.length; at += 1) {
    const line = lines[at] ?? '';
    if (!is(passedLine, line)) {
      kept.push(line);
      continue;
    }
    // TAP announces a test in a comment before it and adds a block of figures after it.
    if (/^\s*# Subtest: /.test(kept.at(-1) ?? '')) kept.pop();
    at = afterBlock(lines, at + 1) - 1;
    if (!said) kept.push(`[${passed} tests passed]`);
    said = true;
  }
  return kept;
}

/** Where the lines go on after the block of figures that begins at `from`; `from` itself where none does. */
function afterBlock(lines: readonly string[], from: number): number {
  if (!/^ +---$/.test(lines[from] ?? '')) return from;
  for (let at = from + 1; at < from + blockMost && lines[at]?.startsWith(' ') === true; at += 1)
    if (/^ +\.\.\.$/.test(lines[at] ?? '')) return at + 1;
  return from;
}

/** unittest says in its list that a test failed, and once more in the heading of the failure: the heading stays. */
function withoutRepeated(lines: readonly string[]): readonly string[] {
  const headings = new Set(lines.map((line) => /^(?:FAIL|ERROR): (.+)$/.exec(line)?.[1]));
  return lines.filter((line) => {
    const name = line.length > lineMost ? undefined : /^\s*(\S.*) \.\.\. (?:FAIL|ERROR)$/.exec(line)?.[1];
    return name === undefined || !headings.has(name);
  });
}

/** Lines that test runners mark a failure with. */
const failureMark =
  /^\s*(?:E\s{2,}|AssertionError|\w*(?:Error|Exception)\b.*:|not ok \d|✖|✗|--- FAIL|panicked at|thread '.*' panicked|FAIL(?:ED)?\b)/;
const assertionMark = /(?:AssertionError|ERR_ASSERTION|^E\s{2,}|!==|!=)/;

/** `assertion … failed` by two searches: one pattern with `.*` between them would take hours on a hostile line of megabytes. */
function marksAssertion(line: string): boolean {
  if (begins(assertionMark, line)) return true;
  const at = line.search(/assert(?:ion)? /);
  return at !== -1 && line.includes('failed', at);
}
/** Where a failure is, which the check's own output has told. */
const placeLine = /^\s*(?:Traceback \(most recent call last\):|File ".*", line \d+, in .*|at .*:\d+:\d+\)?)$/;

/** The piece of a failed check's output that says what is wrong: around the first assertion, at most `limit` characters. */
export function failureExcerpt(text: string, limit = 700): string {
  const lines = text.split('\n').filter((line) => !is(runtimeFrame, line));
  let at = lines.findIndex((line) => marksAssertion(line));
  if (at === -1) at = lines.findIndex((line) => begins(failureMark, line));
  const part = at === -1 ? lines.slice(-8) : lines.slice(Math.max(0, at - 3), at + 6);
  // The next failure's heading ends the piece.
  const heading = part.findIndex((line, i) => i > 3 && /^[=-]{3,}$/.test(line.trim()));
  const said = (heading === -1 ? part : part.slice(0, heading)).filter((line) => !is(placeLine, line));
  const joined = plainer(said.join('\n')).trim();
  return joined.length <= limit ? joined : `${joined.slice(0, limit)}…`;
}
