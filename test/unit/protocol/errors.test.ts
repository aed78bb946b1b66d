import { expect, it } from 'vitest';
import { EscrowError } from '../../../src/protocol/errors.ts';

it('an error from the wire has a code of ours or is none of ours, also where the word means something to JavaScript', () => {
  const wire = (code: string) => EscrowError.fromWire('text', { code, next: '' });
  expect(wire('NotFound')).toMatchObject({ code: 'NotFound', message: 'text' });
  for (const code of ['constructor', 'toString', '__proto__', 'hasOwnProperty', '']) expect(wire(code)).toBeUndefined();
});
