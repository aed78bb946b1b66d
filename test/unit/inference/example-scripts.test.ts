import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { startRehearsal } from '../../../src/server/inference/rehearsal/start.ts';
import type { FileEntry } from '../../../src/protocol/primitives.ts';
import { freezeContract } from '../../../src/server/contract/freeze-contract.ts';
import { scopeGuard } from '../../../src/server/scope/scope-guard.ts';
import { runOn, type RunParts } from '../../fixtures/agent-run.ts';
import { exampleRepo } from '../../fixtures/example-repo.ts';
import { MemorySandbox } from '../../fixtures/memory-sandbox.ts';
import { scope } from '../../fixtures/scope.ts';

const examples = join(import.meta.dirname, '../../../examples');

/** The example as it is frozen, its bytes in a sandbox, and checks that pass. */
async function example(name: 'utc-timestamp' | 'cart-cents'): Promise<RunParts> {
  const repo = await exampleRepo(name);
  try {
    const { contract, bytes } = await freezeContract(repo.contract, scope);
    const original = ({ path }: FileEntry): Promise<Uint8Array> => Promise.resolve(bytes.get(path) ?? new Uint8Array());
    const checks = contract.checks.map(({ id }) => [id, () => ({ end: { kind: 'exit', code: 0 } as const })] as const);
    return {
      contract,
      sandbox: new MemorySandbox(Object.fromEntries(bytes), Object.fromEntries(checks)),
      scope: scopeGuard(contract, scope, original),
    };
  } finally {
    await repo.dispose();
  }
}

describe('the scripts of the examples fit their contracts', () => {
  test.each<['utc-timestamp' | 'cart-cents', string | null, string[], number]>([
    ['utc-timestamp', null, ['chaining'], 0],
    ['utc-timestamp', 'Say why.', [], 0],
    ['cart-cents', null, [], 1],
  ])('%s, feedback %j', async (name, feedback, denials, missed) => {
    const parts = await example(name);
    const { contract, sandbox } = parts;
    const before = new Map(sandbox.files);
    const rehearsal = await startRehearsal({ scriptsDirs: [examples], log: () => undefined });
    try {
      const run = await runOn(rehearsal.engine, name, {
        ...parts,
        ...(feedback === null ? {} : { feedback }),
      });
      expect(run.end.kind).toBe('finished');
      expect(sandbox.denials.map((d) => d.reason)).toEqual(denials);
      const refused = run.facts.filter(
        (f) =>
          f.kind === 'activity' &&
          f.item.kind === 'result' &&
          f.item.ok === false &&
          f.item.title.startsWith('str_replace'),
      );
      expect(refused).toHaveLength(missed);
      for (const { path } of contract.writable) expect(sandbox.files.get(path)).not.toEqual(before.get(path));
      expect(run.activity.filter((a) => a.startsWith('hint'))).toEqual([]);
    } finally {
      await rehearsal.stop();
    }
  });
});
