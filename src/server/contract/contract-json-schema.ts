import * as z from 'zod';
import { ContractSource } from '../../protocol/contract.ts';

/** JSON Schema (draft 7, which VS Code's own JSON language features read) of a contract file as a person writes it. */
export function contractJsonSchema(): Record<string, unknown> {
  const schema = z.toJSONSchema(ContractSource, { io: 'input', target: 'draft-7' });
  return {
    ...schema,
    $id: 'escrow://schemas/contract',
    title: 'Escrow contract',
    description: 'One small change that a local model may attempt: what to do, where, and how it is checked.',
    // VS Code's own extensions of the format: contracts have comments and trailing commas.
    allowComments: true,
    allowTrailingCommas: true,
  };
}
