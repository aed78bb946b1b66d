import { hash } from 'node:crypto';
import type { Sha256 } from './primitives.ts';

/** SHA-256 of bytes, or of a string's UTF-8. */
export function sha256(bytes: Uint8Array | string): Sha256 {
  return hash('sha256', bytes, 'hex') as Sha256;
}

/** JSON with sorted keys and no spaces; `undefined` members are left out. Throws on what JSON cannot hold. */
export function canonicalJson(value: unknown): string {
  if (value === null || typeof value === 'boolean' || typeof value === 'string') return JSON.stringify(value);
  if (typeof value === 'number') {
    if (!Number.isFinite(value)) throw new TypeError('canonicalJson: not a finite number');
    return JSON.stringify(value);
  }
  if (Array.isArray(value)) return `[${value.map(canonicalJson).join(',')}]`;
  if (typeof value === 'object') {
    const record = value as Readonly<Record<string, unknown>>;
    let text = '';
    for (const name of Object.keys(record).sort()) {
      const member = record[name];
      if (member !== undefined) text += `${text === '' ? '' : ','}${JSON.stringify(name)}:${canonicalJson(member)}`;
    }
    return `{${text}}`;
  }
  throw new TypeError(`canonicalJson: ${typeof value} has no JSON form`);
}

/** Digest of a value's canonical JSON. */
export function digestOf(value: unknown): Sha256 {
  return sha256(canonicalJson(value));
}
