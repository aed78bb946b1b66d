import { fits } from '../protocol/shape.ts';
import { Policy } from '../protocol/executor.ts';
import { parseRelPath, pathKey } from '../protocol/paths.ts';
import { Refusal } from './workspace.ts';

/** A policy from its JSON. Throws Refusal `invalid`. */
export function checkedPolicy(bytes: Buffer): Policy {
  let value: unknown;
  try {
    value = JSON.parse(bytes.toString('utf8'));
  } catch {
    throw new Refusal('invalid', 'the policy is no JSON');
  }
  if (!fits(Policy, value)) throw new Refusal('invalid', 'the policy does not have the agreed form');
  checkRules(value);
  return value;
}

/** Throws Refusal `invalid`. */
export function checkPath(path: string): void {
  const parsed = parseRelPath(path);
  if (!parsed.ok) throw new Refusal('invalid', `path: ${parsed.reason}`);
}

/** Whether a path is a folder or lies in it. */
export function isWithin(path: string, folder: string): boolean {
  return path === folder || path.startsWith(`${folder}/`);
}

/** What the schema can't say: rules of paths, no file in scratch, no writable file that could be taken for another. */
function checkRules(policy: Policy): void {
  for (const path of [...policy.readable, ...policy.writable, ...policy.scratch]) checkPath(path);
  for (const path of policy.modules ?? []) {
    checkPath(path);
    if (!/(?:^|\/)node_modules$/.test(path)) throw new Refusal('invalid', `${path}: not a node_modules folder`);
  }
  const files = [...policy.readable, ...policy.writable];
  for (const folder of policy.scratch) {
    const inside = files.some((path) => isWithin(path, folder));
    const nested = policy.scratch.some((other) => other !== folder && isWithin(other, folder));
    if (inside || nested)
      throw new Refusal('invalid', `${folder}: a scratch folder can't hold declared files or folders`);
  }
  const owners = new Map<string, string>(files.map((path) => [pathKey(path), path]));
  for (const path of files) {
    const writable = policy.writable.some((other) => pathKey(other) === pathKey(path));
    if (writable && owners.get(pathKey(path)) !== path) {
      throw new Refusal('invalid', `${path}: differs from another path only in case`);
    }
  }
  if (new Set(policy.commands.map(({ id }) => id)).size !== policy.commands.length) {
    throw new Refusal('invalid', 'two commands have the same id');
  }
}
