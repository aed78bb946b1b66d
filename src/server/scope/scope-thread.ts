// The thread that parses. It knows no file, no store and no clock: whoever started it ends it when it takes too long.
import { parentPort, workerData } from 'node:worker_threads';
import { compare, outline } from './answer-scope.ts';
import type { ScopeLanguage } from './port.ts';
import type { ScopeQuestion, ScopeReply } from './scope-messages.ts';
import { loadParser } from './syntax-parser.ts';

const { folder, memoryMiB } = workerData as { readonly folder: string; readonly memoryMiB: number };
const port = parentPort;
if (port === null) throw new Error('this runs as a thread of the Kernel');
const reply = (message: ScopeReply): void => port.postMessage(message);
/** Loaded once; a bundle has no await at its top. */
const loading = loadParser(folder, memoryMiB);

const languageOf = (question: ScopeQuestion): ScopeLanguage =>
  question.kind === 'outline' ? question.language : question.comparison.language;

async function answer(question: ScopeQuestion): Promise<ScopeReply> {
  try {
    const { parserFor } = await loading;
    const parse = await parserFor(languageOf(question));
    return question.kind === 'outline'
      ? { kind: 'outline', outline: outline(parse, question.language, question.bytes) }
      : { kind: 'compare', fault: compare(parse, question.comparison) };
  } catch (error) {
    return { kind: 'broken', message: String(error) };
  }
}

port.on('message', (question: ScopeQuestion) => {
  void answer(question).then(reply);
});
// One that can't be loaded ends the thread: it says why by its error.
void loading.then(({ grammars }) => reply({ kind: 'ready', grammars }));
