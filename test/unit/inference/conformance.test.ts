import { describe, test, vi } from 'vitest';
import { describeEngine } from '../../fixtures/engine-conformance.ts';
import {
  completionsSubject,
  llamaSubject,
  ollamaSubject,
  realOllamaSubject,
  rehearsalSubject,
} from '../../fixtures/engine-subjects.ts';
import { findLlamaServer } from '../../fixtures/llama-server.ts';
import { findOllama } from '../../fixtures/real-ollama.ts';

// Real engines load a model for each test.
vi.setConfig({ testTimeout: 120_000 });

describeEngine(ollamaSubject);
describeEngine(completionsSubject);
describeEngine(rehearsalSubject);

const program = await findLlamaServer();
if (program === undefined)
  describe('engine: llama.cpp, the real server', () => {
    test.skip('is not on this machine (ESCROW_LLAMA_SERVER names it)', () => undefined);
  });
else describeEngine(llamaSubject(program));

const ollama = await findOllama();
if (ollama === undefined)
  describe('engine: Ollama, the real one', () => {
    test.skip('is not on this machine (ESCROW_OLLAMA names it)', () => undefined);
  });
else describeEngine(realOllamaSubject(ollama));
