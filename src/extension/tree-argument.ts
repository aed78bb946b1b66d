import type { Target } from './trees/tree-node.ts';

/** Whether a command's argument is a row of ours; anybody may call a command with anything. */
export function isRow(argument: unknown): argument is { readonly target: Target } {
  return (
    typeof argument === 'object' &&
    argument !== null &&
    'target' in argument &&
    typeof argument.target === 'object' &&
    argument.target !== null &&
    'kind' in argument.target
  );
}
