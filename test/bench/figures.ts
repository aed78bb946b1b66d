/** One figure of a suite. Ratios are the ones to read: times on a shared machine mean little. */
export interface Figure {
  readonly name: string;
  readonly value: number;
  readonly unit: 'ms' | 'us' | 'ratio' | 'MiB' | 'per second' | 'count';
  /** What it should be, in words that a program can compare: `< 0.1`; null for a figure that only explains another. */
  readonly aim: string | null;
  /** What the value was taken from, in the order of measurement. */
  readonly samples: readonly number[];
}

export interface Suite {
  readonly name: string;
  /** What the process that measures has to be started with. */
  readonly nodeFlags?: readonly string[];
  /** Progress goes to `say`. */
  run(say: (line: string) => void): Promise<readonly Figure[]>;
}

const rounded = (value: number): number => Number(value.toPrecision(4));

/** The middle value; of an even number of values the mean of the two in the middle. Throws for none. */
export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = Math.floor(sorted.length / 2);
  const upper = sorted[middle];
  const lower = sorted[sorted.length % 2 === 1 ? middle : middle - 1];
  if (upper === undefined || lower === undefined) throw new Error('a median of nothing');
  return (upper + lower) / 2;
}

/** The median of some times in milliseconds. */
export function time(name: string, samples: readonly number[]): Figure {
  return { name, value: rounded(median(samples)), unit: 'ms', aim: null, samples: samples.map(rounded) };
}

/** The median of pairwise ratios: both members of a pair were measured right after each other. */
export function ratio(name: string, ours: readonly number[], bare: readonly number[], aim: string | null): Figure {
  const samples = ours.map((value, i) => value / (bare[i] ?? Number.NaN));
  return { name, value: rounded(median(samples)), unit: 'ratio', aim, samples: samples.map(rounded) };
}

/** Whether a figure meets its aim; true for one without. Throws for an aim of another form than `< n` or `> n`. */
export function meets(figure: Figure): boolean {
  if (figure.aim === null) return true;
  const match = /^([<>]) (\d+(?:\.\d+)?)$/.exec(figure.aim);
  if (match === null) throw new Error(`cannot compare with "${figure.aim}"`);
  return match[1] === '<' ? figure.value < Number(match[2]) : figure.value > Number(match[2]);
}

/** Milliseconds that some work took. */
export async function timed(work: () => Promise<unknown>): Promise<number> {
  const started = performance.now();
  await work();
  return performance.now() - started;
}
