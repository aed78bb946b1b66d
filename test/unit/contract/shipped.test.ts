import { expect, it } from 'vitest';
import { freezeContract } from '../../../src/server/contract/freeze-contract.ts';
import { shippedContracts } from '../../../src/server/contract/shipped.ts';
import { exampleRepo } from '../../fixtures/example-repo.ts';
import { scope } from '../../fixtures/scope.ts';

it.each(Object.keys(shippedContracts) as (keyof typeof shippedContracts)[])(
  'the digest of %s is the one that the Kernel knows it by, in whatever folder it lies',
  async (name) => {
    const repo = await exampleRepo(name);
    try {
      expect((await freezeContract(repo.contract, scope)).digest).toBe(shippedContracts[name]);
    } finally {
      await repo.dispose();
    }
  },
);
