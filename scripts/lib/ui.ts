import { createInterface } from 'node:readline/promises';

/** A change to this system that a person is asked about. */
export interface Question {
  /** What it is about: the same thing may be asked in other words when it comes to it. */
  readonly about: string;
  /** The change itself, as an order: "Install git with apt-get (…)". */
  readonly text: string;
}

/** How a set-up step talks: everything on stderr, so that a script's stdout stays its own. */
export interface Ui {
  readonly log: (line: string) => void;
  /** Asks before the system is changed; true without asking under CI or `--yes`. Throws SetupError where nobody can be asked. */
  readonly confirm: (question: Question) => Promise<boolean>;
}

/** A step that could not be done, and the one line that says what to do. */
export class SetupError extends Error {
  override readonly name = 'SetupError';
  readonly next: string;
  constructor(message: string, next: string) {
    super(message);
    this.next = next;
  }
}

/** The Ui of a script: agreed in advance by `yes` or CI, else asked on the terminal. */
export function createUi(yes: boolean): Ui {
  const agreed = yes || (process.env['CI'] ?? '') !== '';
  const log = (line: string): void => {
    process.stderr.write(`setup: ${line}\n`);
  };
  return {
    log,
    async confirm({ text }) {
      if (agreed) {
        log(`${text}? yes (${yes ? '--yes' : 'CI'})`);
        return true;
      }
      if (!process.stdin.isTTY) {
        throw new SetupError(
          `a change to this system needs your yes: ${text}`,
          'Nobody can be asked here. Run the same command with -- --yes to agree to it.',
        );
      }
      const prompt = createInterface({ input: process.stdin, output: process.stderr });
      try {
        return /^y(es)?$/i.test((await prompt.question(`setup: ${text}? [y/N] `)).trim());
      } finally {
        prompt.close();
      }
    },
  };
}

/**
 * Asks about everything that is foreseen, once and before anything is done: steps that run side by side can't ask. The
 * Ui that it gives has that answer for each of them, and asks only about what nobody foresaw.
 */
export async function askOnce(ui: Ui, foreseen: readonly Question[]): Promise<Ui> {
  const [first, ...others] = foreseen;
  if (first === undefined) return ui;
  const all = others.length === 0 ? first.text : foreseen.map(({ text }) => `\n         - ${text}`).join('');
  const answer = await ui.confirm({
    about: 'everything',
    text: others.length === 0 ? all : `Do all of this:${all}\n       Do it`,
  });
  const topics = new Set(foreseen.map(({ about }) => about));
  return {
    log: ui.log,
    confirm: (question) => (topics.has(question.about) ? Promise.resolve(answer) : ui.confirm(question)),
  };
}

/** Prints what a script threw, and sets its exit code. */
export function reportFailure(error: unknown): void {
  process.stderr.write(`error: ${failureText(error)}\n`);
  process.exitCode = 1;
}

/** What was thrown, in words: with what to do where a step said it, with its stack where it is a defect. */
export function failureText(error: unknown): string {
  if (error instanceof SetupError) return `${error.message}\n→ ${error.next}`;
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}
