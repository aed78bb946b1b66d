import { afterEach, describe, expect, it } from 'vitest';
import { checkContract, freezeContract } from '../../../src/server/contract/freeze-contract.ts';
import { exampleRepo } from '../../fixtures/example-repo.ts';
import type { ExampleRepo } from '../../fixtures/example-repo.ts';
import { scope } from '../../fixtures/scope.ts';

describe('the shipped examples', () => {
  let repo: ExampleRepo | undefined;
  afterEach(() => repo?.dispose());

  it.each(['utc-timestamp', 'cart-cents'] as const)(
    '%s freezes without a remark and shows the agent nothing that tells the answer',
    async (name) => {
      repo = await exampleRepo(name);
      expect((await checkContract(repo.contract, scope)).diagnostics).toEqual([]);
      const { contract } = await freezeContract(repo.contract, scope);
      const shown = contract.files.map((file) => file.path).join('\n');
      expect(shown).not.toMatch(/acceptance|rehearsal|contract\.jsonc/);
    },
  );
});
