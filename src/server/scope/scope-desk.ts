import { Worker } from 'node:worker_threads';
import type { Logger } from '../log.ts';
import type { ScopeGrammar } from '../../protocol/contract.ts';
import { ScopeUnavailable, type Compared, type Comparison, type Outline, type ScopeChecker } from './port.ts';
import type { ScopeFault, ScopeLanguage } from './port.ts';
import type { ScopeQuestion, ScopeReply } from './scope-messages.ts';

export interface ScopeDeskOptions {
  /** The program of the thread (`scope-thread.ts`, or its bundle). */
  readonly program: string;
  /** Where the grammars lie. */
  readonly grammars: string;
  readonly log: Logger;
  /**
   * How long one question may take, ms. Two files of the largest size that hold nothing but nested calls took 3.4 s
   * together (measured on two cores); a file that takes longer is one that recovers from fault after fault.
   */
  readonly deadlineMs?: number;
  /** How long the thread may take to start, ms; then there is none. */
  readonly startMs?: number;
  /**
   * Memory that the parser may take, MiB. Half a MiB of nothing but parentheses took 174 (measured), which is the most that
   * a file of the largest size was seen to take.
   */
  readonly memoryMiB?: number;
  /** After so long without a question the thread is ended, ms: its memory is as large as its largest file made it. */
  readonly idleMs?: number;
}

/** Of what a thread prints so much is kept for the log, characters; a runtime that ends says why in less. */
const mostSaid = 4_000;
/** Questions that may wait; beyond it there is no answer. */
const mostWaiting = 256;

type Ready = Extract<ScopeReply, { kind: 'ready' }>;
type Answer = Exclude<ScopeReply, Ready>;
/** Why a question got no answer from the thread: the input's doing. */
type Lost = { readonly kind: 'lost'; readonly reason: 'too-slow' | 'parser-failed' };
interface Answered {
  readonly answer: Answer | Lost;
  /** Of the thread that was asked. */
  readonly grammars: Grammars;
}
/** One that says nothing of them (none of ours) has none. */
type Grammars = Readonly<Partial<Record<ScopeLanguage, ScopeGrammar>>>;

/**
 * Owns the thread that parses what a candidate holds: hostile bytes. One question at a time; one that is not answered in
 * time, or takes the thread down, is answered as out of scope, and the thread is started again for the next.
 */
export class ScopeDesk implements ScopeChecker {
  readonly #options: Required<ScopeDeskOptions>;
  #thread: Thread | undefined;
  #turn: Promise<unknown> = Promise.resolve();
  #waiting = 0;
  #idle: NodeJS.Timeout | undefined;
  #ended = false;

  constructor(options: ScopeDeskOptions) {
    this.#options = { deadlineMs: 10_000, startMs: 20_000, idleMs: 60_000, memoryMiB: 384, ...options };
  }

  async outline(language: ScopeLanguage, bytes: Uint8Array): Promise<Outline> {
    const { answer } = await this.#ask({ kind: 'outline', language, bytes });
    return answer.kind === 'outline' ? answer.outline : { ok: false, fault: lostFault(answer) };
  }

  async compare(comparison: Comparison): Promise<Compared> {
    const { answer, grammars } = await this.#ask({ kind: 'compare', comparison });
    return {
      fault: answer.kind === 'compare' ? answer.fault : lostFault(answer),
      grammar: grammars[comparison.language] ?? null,
    };
  }

  /** Ends the thread; whatever is asked from now on is ScopeUnavailable. */
  async dispose(): Promise<void> {
    this.#ended = true;
    await this.#end();
  }

  #ask(question: ScopeQuestion): Promise<Answered> {
    if (this.#waiting >= mostWaiting) return Promise.reject(new ScopeUnavailable('too many files wait to be parsed'));
    this.#waiting += 1;
    const mine = this.#turn.then(() => this.#put(question));
    this.#turn = mine
      .catch(() => undefined)
      .finally(() => {
        this.#waiting -= 1;
      });
    return mine;
  }

  async #put(question: ScopeQuestion): Promise<Answered> {
    clearTimeout(this.#idle);
    const thread = await this.#started();
    const answer = await thread.ask(question, this.#options.deadlineMs);
    const { grammars } = thread;
    if (answer.kind === 'lost' || answer.kind === 'broken') {
      this.#options.log('warn', 'a file could not be parsed', { answer: { ...answer }, said: thread.said });
      await this.#end();
      if (this.#ended) throw new ScopeUnavailable('the Kernel ends');
      return { answer, grammars };
    }
    this.#idle = setTimeout(() => void this.#end(), this.#options.idleMs).unref();
    return { answer, grammars };
  }

  async #started(): Promise<Thread> {
    if (this.#ended) throw new ScopeUnavailable('the Kernel ends');
    if (this.#thread?.alive === true) return this.#thread;
    const { program, grammars, startMs, memoryMiB } = this.#options;
    const thread = new Thread(program, { folder: grammars, memoryMiB });
    this.#thread = thread;
    const fault = await thread.ready(startMs);
    if (fault === null) return thread;
    await this.#end();
    this.#options.log('warn', 'the parser did not start', { fault, said: thread.said });
    throw new ScopeUnavailable(`the parser did not start: ${fault}`);
  }

  async #end(): Promise<void> {
    clearTimeout(this.#idle);
    const thread = this.#thread;
    this.#thread = undefined;
    await thread?.end();
  }
}

function lostFault(answer: Answer | Lost): ScopeFault {
  const reason = answer.kind === 'lost' ? answer.reason : 'parser-failed';
  return { reason, line: null, found: null, expected: null };
}

/** One thread, from its start to its end. */
class Thread {
  /** As it said when it was ready. */
  grammars: Grammars = {};
  /** The beginning of what it printed: hostile text. It has nothing to say there; this is for whoever looks for a fault. */
  said = '';
  readonly #worker: Worker;
  #listener: ((reply: ScopeReply | { readonly kind: 'gone'; readonly message: string }) => void) | undefined;
  #gone: string | undefined;

  constructor(program: string, workerData: { readonly folder: string; readonly memoryMiB: number }) {
    this.#worker = new Worker(program, {
      workerData,
      // It needs nothing of this process: no environment, no arguments, no input.
      env: {},
      argv: [],
      execArgv: [],
      stdout: true,
      stderr: true,
      // What the wasm may take has a limit of its own; this is for the trees that are copied out of it.
      resourceLimits: { maxOldGenerationSizeMb: 768, maxYoungGenerationSizeMb: 64 },
    });
    this.#worker.unref();
    // Read to the end, else a thread that prints would wait for a reader for ever.
    for (const stream of [this.#worker.stdout, this.#worker.stderr]) {
      stream.on('data', (chunk: Buffer) => {
        if (this.said.length < mostSaid) this.said += chunk.toString('utf8').slice(0, mostSaid - this.said.length);
      });
    }
    const gone = (message: string): void => {
      this.#gone ??= message;
      this.#listener?.({ kind: 'gone', message });
    };
    this.#worker.on('message', (reply: ScopeReply) => this.#listener?.(reply));
    this.#worker.on('error', (error) => gone(String(error)));
    this.#worker.on('exit', (code) => gone(`it exited with ${code}`));
  }

  get alive(): boolean {
    return this.#gone === undefined;
  }

  /** Null when it is ready; else why not. */
  async ready(withinMs: number): Promise<string | null> {
    const reply = await this.#next(withinMs);
    if (reply?.kind === 'ready') {
      this.grammars = reply.grammars;
      return null;
    }
    return reply === undefined ? 'it did not answer' : 'message' in reply ? reply.message : 'it answered out of turn';
  }

  async ask(question: ScopeQuestion, withinMs: number): Promise<Answer | Lost> {
    const next = this.#next(withinMs);
    // oxlint-disable-next-line unicorn/require-post-message-target-origin -- a thread has no origin
    this.#worker.postMessage(question);
    const reply = await next;
    if (reply === undefined) return { kind: 'lost', reason: 'too-slow' };
    if (reply.kind === 'gone' || reply.kind === 'ready') return { kind: 'lost', reason: 'parser-failed' };
    return reply;
  }

  /** Stops it wherever it is; resolves when it is gone. */
  async end(): Promise<void> {
    await this.#worker.terminate();
  }

  /** The next thing that it says, or undefined. */
  #next(withinMs: number): Promise<ScopeReply | { readonly kind: 'gone'; readonly message: string } | undefined> {
    if (this.#gone !== undefined) return Promise.resolve({ kind: 'gone', message: this.#gone });
    return new Promise((resolve) => {
      // A question holds the process: its answer is waited for.
      this.#worker.ref();
      const done = (reply: ScopeReply | { readonly kind: 'gone'; readonly message: string } | undefined): void => {
        clearTimeout(timer);
        this.#listener = undefined;
        this.#worker.unref();
        resolve(reply);
      };
      const timer = setTimeout(() => done(undefined), withinMs);
      this.#listener = done;
    });
  }
}
