import { describe, expect, it } from 'vitest';
import type { FrozenContract } from '../../../src/protocol/contract.ts';
import { sha256 } from '../../../src/protocol/hash.ts';
import type { RelPath } from '../../../src/protocol/primitives.ts';
import { candidateOf } from '../../../src/server/review/candidate.ts';
import type { CollectedFile } from '../../../src/server/review/candidate.ts';
import { verificationFiles } from '../../../src/server/verification/verification-files.ts';
import { frozenContract } from '../../fixtures/frozen-contract.ts';

const entry = (path: string, text: string, mode = 0o644) => ({
  path: path as RelPath,
  mode,
  size: text.length,
  sha256: sha256(text),
});
const collected = (path: string, text: string, mode = 0o644): CollectedFile => ({
  path: path as RelPath,
  mode,
  ref: { sha256: sha256(text), size: text.length },
});
const contract: FrozenContract = {
  ...frozenContract({ writable: [{ path: 'a' }, { path: 'b' }, { path: 'new', exists: false }] }),
  files: [
    { ...entry('a', 'A'), protected: false },
    { ...entry('b', 'B'), protected: false },
    { ...entry('t', 'T'), protected: true },
  ],
};
const absent = ['new' as RelPath];

describe('a candidate', () => {
  it('is none when nothing changed', () => {
    expect(candidateOf(contract, [collected('a', 'A'), collected('b', 'B')], absent)).toBeNull();
  });

  it('names what was modified, added and deleted', () => {
    const candidate = candidateOf(contract, [collected('a', 'A2'), collected('new', 'N')], ['b' as RelPath]);
    expect(candidate?.files.map((f) => [f.path, f.change, f.before?.sha256 ?? null, f.after?.sha256 ?? null])).toEqual([
      ['a', 'modified', sha256('A'), sha256('A2')],
      ['b', 'deleted', sha256('B'), null],
      ['new', 'added', null, sha256('N')],
    ]);
  });

  it('is the same for the same bytes, whatever their order and the rest of their mode', () => {
    const one = candidateOf(contract, [collected('a', 'A2'), collected('b', 'B')], absent);
    const two = candidateOf(contract, [collected('b', 'B', 0o600), collected('a', 'A2', 0o664)], absent);
    expect(two?.digest).toBe(one?.digest);
  });

  it('is another one for other bytes, another contract, an executable bit, or an empty file in place of none', () => {
    const of = (files: CollectedFile[], missing = absent, from = contract) => candidateOf(from, files, missing)?.digest;
    const base = of([collected('a', 'A2'), collected('b', 'B')]);
    const others = [
      of([collected('a', 'A3'), collected('b', 'B')]),
      of([collected('a', 'A2'), collected('b', 'B')], absent, { ...contract, instruction: 'Other.' }),
      of([collected('a', 'A2', 0o755), collected('b', 'B')]),
      of([collected('a', 'A2'), collected('b', 'B'), collected('new', '')], []),
      of([collected('a', 'A2'), collected('b', 'B')], []),
    ];
    expect(new Set([base, ...others]).size).toBe(others.length + 1);
  });

  it('does not take a file that could not be read for a deleted one', () => {
    const candidate = candidateOf(contract, [collected('a', 'A2')], absent);
    expect(candidate?.files.map((f) => f.path)).toEqual(['a']);
  });

  it('is refused when it holds what nobody may write', () => {
    expect(() => candidateOf(contract, [collected('t', 'T2')], [])).toThrow('not writable');
    expect(() => candidateOf(contract, [collected('a', '1'), collected('a', '2')], [])).toThrow('twice');
  });
});

describe('the files of a verification', () => {
  const file = (path: string, text: string) => ({ path: path as RelPath, mode: 0o644, bytes: Buffer.from(text) });
  const snapshot = [file('a', 'A'), file('b', 'B'), file('t', 'T')];
  const place = (candidate: ReturnType<typeof file>[], supplemental: ReturnType<typeof file>[] = []) =>
    Object.fromEntries(
      verificationFiles({ contract, snapshot, candidate, supplemental }).map((f) => [
        f.path,
        Buffer.from(f.bytes).toString(),
      ]),
    );

  it('are the snapshot with the candidate over it and the supplemental files beside it', () => {
    expect(place([file('a', 'A2'), file('b', 'B'), file('new', 'N')], [file('h', 'H')])).toEqual({
      a: 'A2',
      b: 'B',
      new: 'N',
      t: 'T',
      h: 'H',
    });
  });
  it('lack what the candidate deleted', () => {
    expect(place([file('a', 'A')])).toEqual({ a: 'A', t: 'T' });
  });
  it('cannot be replaced by a candidate where they judge it', () => {
    expect(() => place([file('t', 'forged')])).toThrow('not writable');
    const loose: FrozenContract = { ...contract, writable: [{ path: 't' as RelPath, symbols: null, exists: true }] };
    const placed = verificationFiles({ contract: loose, snapshot, candidate: [file('t', 'forged')], supplemental: [] });
    expect(placed.find((f) => f.path === 't')?.bytes).toEqual(Buffer.from('T'));
  });
  it('take a hidden file over a candidate’s of the same name', () => {
    const loose: FrozenContract = { ...contract, writable: [{ path: 'h' as RelPath, symbols: null, exists: false }] };
    const placed = verificationFiles({
      contract: loose,
      snapshot,
      candidate: [file('h', 'forged')],
      supplemental: [file('h', 'H')],
    });
    expect(placed.find((f) => f.path === 'h')?.bytes).toEqual(Buffer.from('H'));
  });
});
