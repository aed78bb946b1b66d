import type { JSONPath } from 'jsonc-parser';
import type { ContractDiagnostic } from '../../protocol/contract.ts';
import type { Locate } from './parse-contract.ts';

/** Adds one remark on the value at a path of the contract. */
export type Remark = (code: string, message: string, at: JSONPath) => void;

/** The remarks on one contract, each where it is written. */
export interface Remarks {
  readonly all: readonly ContractDiagnostic[];
  readonly error: Remark;
  readonly warning: Remark;
  readonly failed: () => boolean;
}

/** An empty collection of remarks on the contract that `locate` belongs to. */
export function createRemarks(locate: Locate): Remarks {
  const all: ContractDiagnostic[] = [];
  const add =
    (severity: ContractDiagnostic['severity']): Remark =>
    (code, message, at) => {
      all.push({ severity, code, message, ...locate(at) });
    };
  return {
    all,
    error: add('error'),
    warning: add('warning'),
    failed: () => all.some(({ severity }) => severity === 'error'),
  };
}
