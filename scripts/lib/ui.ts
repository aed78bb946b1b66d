import { createInterface } from 'node:readline/promises';

/** How a set-up step talks: everything on stderr, so that a script's stdout stays its own. */
export interface Ui {
  readonly log: (line: string) => void;
  /** Asks before the system is changed; true without asking under CI or `--yes`. Throws SetupError where nobody can be asked. */
  readonly confirm: (question: string) => Promise<boolean>;
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
    async confirm(question) {
      if (agreed) {
        log(`${question} yes (${yes ? '--yes' : 'CI'})`);
        return true;
      }
      if (!process.stdin.isTTY) {
        throw new SetupError(
          `a change to this system needs your yes: ${question}`,
          'Nobody can be asked here. Run the same command with -- --yes to agree to it.',
        );
      }
      const prompt = createInterface({ input: process.stdin, output: process.stderr });
      try {
        return /^y(es)?$/i.test((await prompt.question(`setup: ${question} [y/N] `)).trim());
      } finally {
        prompt.close();
      }
    },
  };
}

/** Prints what a script threw, and sets its exit code. */
export function reportFailure(error: unknown): void {
  if (error instanceof SetupError) process.stderr.write(`error: ${error.message}\n→ ${error.next}\n`);
  else process.stderr.write(`error: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}\n`);
  process.exitCode = 1;
}
