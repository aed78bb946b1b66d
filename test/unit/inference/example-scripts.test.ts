import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { parse } from 'jsonc-parser';
import { describe, expect, test } from 'vitest';
import { startRehearsal } from '../../../src/server/inference/rehearsal/start.ts';
import { runOn } from '../../fixtures/agent-run.ts';
import { frozenContract } from '../../fixtures/frozen-contract.ts';
import { MemorySandbox } from '../../fixtures/memory-sandbox.ts';

const examples = join(import.meta.dirname, '../../../examples');

/** The example's files and checks; a check passes once every writable file differs from the original. */
async function example(name: string): Promise<{ contract: ReturnType<typeof frozenContract>; sandbox: MemorySandbox }> {
  const folder = join(examples, name);
  const source = parse(await readFile(join(folder, `${name}.contract.jsonc`), 'utf8'));
  const files: Record<string, Uint8Array> = {};
  for (const sub of ['src', 'test', 'tests'])
    for (const file of await readdir(join(folder, sub)).catch(() => []))
      files[`${sub}/${file}`] = await readFile(join(folder, sub, file)).catch(() => new Uint8Array());
  const checks = source.acceptance as { id: string; argv: string[] }[];
  const sandbox = new MemorySandbox(
    files,
    Object.fromEntries(checks.map((check) => [check.id, () => ({ end: { kind: 'exit', code: 0 } as const })])),
  );
  const writable = (source.writable as string[]).map((path) => ({ path }));
  return { contract: frozenContract({ readable: Object.keys(files), writable, checks }), sandbox };
}

describe('the scripts of the examples fit their contracts', () => {
  test.each([
    ['utc-timestamp', null, ['chaining'], 0],
    ['utc-timestamp', 'Say why.', [], 0],
    ['cart-cents', null, [], 1],
  ])('%s, feedback %j', async (name, feedback, denials, missed) => {
    const { contract, sandbox } = await example(name);
    const before = new Map(sandbox.files);
    const rehearsal = await startRehearsal({ scriptsDirs: [examples], log: () => undefined });
    try {
      const run = await runOn(rehearsal.engine, name, {
        contract,
        sandbox,
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
