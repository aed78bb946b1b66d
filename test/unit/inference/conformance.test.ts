import { describe, test } from 'vitest';
import { describeEngine } from '../../fixtures/engine-conformance.ts';
import { completionsSubject, llamaSubject, ollamaSubject, rehearsalSubject } from '../../fixtures/engine-subjects.ts';
import { findLlamaServer } from '../../fixtures/llama-server.ts';

describeEngine(ollamaSubject);
describeEngine(completionsSubject);
describeEngine(rehearsalSubject);

const program = await findLlamaServer();
if (program === undefined)
  describe('engine: llama.cpp, the real server', () => {
    test.skip('is not on this machine (npm run llama-server makes it)', () => undefined);
  });
else describeEngine(llamaSubject(program));
