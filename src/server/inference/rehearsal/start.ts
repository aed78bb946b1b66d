import { isAbsolute } from 'node:path';
import { EscrowError } from '../../../protocol/errors.ts';
import { createOllamaEngine } from '../ollama.ts';
import type { InferenceEngine } from '../port.ts';
import { InferenceFailure } from '../port.ts';
import type { RehearsalServerOptions } from './server.ts';
import { startRehearsalServer } from './server.ts';

/**
 * The embedded rehearsal engine: a scripted server on a random loopback port, spoken to by the same adapter as Ollama.
 * Tags: a script's `name`, `rehearsal/<name>`, or the absolute path of a script file. `stop` closes the server; requests
 * that run then end as cut.
 */
export async function startRehearsal(
  options: RehearsalServerOptions,
): Promise<{ readonly engine: InferenceEngine; readonly stop: () => Promise<void> }> {
  const server = await startRehearsalServer(options);
  const adapter = createOllamaEngine({
    host: server.host,
    kind: 'rehearsal',
    now: () => Date.now(),
    monotonic: () => performance.now(),
    log: options.log,
  });

  const spelled = (tag: string): string => (isAbsolute(tag) || tag.includes('/') ? tag : `rehearsal/${tag}`);
  const known = async (tag: string): Promise<string> => {
    const name = spelled(tag);
    if (isAbsolute(name)) await server.addFile(name);
    return name;
  };

  const engine: InferenceEngine = {
    ...adapter,
    async identity(tag) {
      let name: string;
      try {
        name = await known(tag);
      } catch (error) {
        throw new EscrowError(
          'ModelNotFound',
          `The rehearsal script cannot be used: ${error instanceof Error ? error.message : String(error)}.`,
          'Name a rehearsal script, or the absolute path of a script file.',
          { tag },
        );
      }
      // The script was read and hashed by this very process: no engine's word is taken for it.
      return { ...(await adapter.identity(name)), weights: null, unproven: [], witness: 'host' };
    },
    async chat(request, expected, onEvent, signal) {
      let name: string;
      try {
        name = await known(request.model);
      } catch (error) {
        throw new InferenceFailure('identity', 'model_gone', error instanceof Error ? error.message : String(error));
      }
      return adapter.chat({ ...request, model: name }, expected, onEvent, signal);
    },
  };
  return { engine, stop: async () => server.close() };
}
