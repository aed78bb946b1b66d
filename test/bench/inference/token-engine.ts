// An Ollama in a process of its own: "TOKENS MS" as the message makes so many tokens, so many ms apart (0: at once).
import { setImmediate as turn, setTimeout as wait } from 'node:timers/promises';
import { lastLine, line, startOllamaPeer, streaming } from '../../fixtures/bad-peers/ollama-peer.ts';

const peer = await startOllamaPeer({
  chat: async (response, body) => {
    const { messages } = JSON.parse(body) as { messages: readonly { content: string }[] };
    const [tokens = 0, everyMs = 0] = (messages[0]?.content ?? '').split(' ').map(Number);
    streaming(response);
    for (let n = 0; n < tokens; n += 1) {
      response.write(line({ content: `token${n} ` }));
      if (everyMs > 0) await wait(everyMs);
      else if (n % 8 === 7) await turn();
    }
    response.end(lastLine);
  },
});
process.send?.(peer.host);
