import { expect, test } from 'vitest';
import { faultWords, inOneLine, windowFault } from '../../../src/extension/fault-words.ts';
import { EscrowError, errorCodes, type ErrorCode } from '../../../src/protocol/errors.ts';
import { words } from '../../fixtures/window-state.ts';

const said = (error: EscrowError): string => inOneLine(faultWords(error, '/state', words.t));

test('what a program said is not what a person reads', () => {
  const engine = new EscrowError('EngineUnavailable', 'version: connect ENOENT /run/x.sock', 'x; escrow doctor.', {
    kind: 'unreachable',
  });
  expect(said(engine)).toBe('No container engine answers. Start Docker or Podman, then try again.');
  expect(said(new EscrowError('Internal', "TypeError: Cannot read 'x'", 'See kernel.log.'))).not.toContain('TypeError');
});

test('a program that is no Node is named, and not what the system said of it', () => {
  const error = new EscrowError(
    'NoKernel',
    'It could not be started with /x: spawn /x ENOENT',
    'Set escrow.kernel.node.',
    {
      nodePath: '/x',
    },
  );
  expect(said(error)).toBe(
    'The Kernel could not be started with /x. Set escrow.kernel.node to a Node of version 22 or newer.',
  );
});

test('a full disk is named by the folder that lies on it; a full allowance is not taken for one', () => {
  const disk = new EscrowError('StorageFull', 'No space left while taking the lock.', 'x', { reason: 'disk' });
  expect(said(disk)).toBe('No space is left on the disk that holds /state. Free space there.');
  const allowance = new EscrowError('StorageFull', 'The session may keep no more.', 'Close it', {
    reason: 'allowance',
  });
  expect(said(allowance)).toMatch(/^What may be kept of this session is used up\./);
  const tree = new EscrowError('StorageFull', 'x', 'x', { root: '/repo', errno: 'ENOSPC' });
  expect(said(tree)).toBe('No space is left in /repo; every file is as it was. Free space there, then try again.');
});

test('a missing image is prepared with the window’s own button, unless its base is gone for good', () => {
  const next = 'Prepare the sandbox image: escrow image prepare.';
  expect(said(new EscrowError('ImageUnavailable', 'There is no base image yet.', next, { pinned: null }))).toBe(
    'The sandbox image of this contract is not there yet. Prepare the sandbox image.',
  );
  const gone = new EscrowError('ImageUnavailable', 'The base is gone.', 'Freeze it again.', { pinned: 'sha256:1' });
  expect(said(gone)).toContain('Freeze the contract again');
  const alpine = new EscrowError('ImageUnavailable', 'x is built on musl.', 'x', { base: 'x', lacking: 'y' });
  expect(said(alpine)).toBe(
    'No sandbox image can be made from this base. x is built on musl. Name another base image in the contract.',
  );
});

test('two sentences never run into each other', () => {
  for (const code of Object.keys(errorCodes) as ErrorCode[]) {
    expect(said(new EscrowError(code, 'it is refused: because', 'Do this'))).toMatch(/^\p{L}.*[.!?…] \p{Lu}.*\.$/u);
  }
});

const codes = Object.keys(errorCodes) as ErrorCode[];

test('no code is without words of the window: what is so, and what to do there; never a line for the command line', () => {
  const raw = (code: ErrorCode) => new EscrowError(code, 'connect ENOENT /run/x', 'Run `escrow doctor`.');
  for (const code of codes) {
    const { what, next } = faultWords(raw(code), '/state', words.t);
    expect(what, code).not.toMatch(/ENOENT|^$/);
    expect(next, code).not.toMatch(/escrow doctor|^$/);
  }
  const whats = codes
    .filter((code) => code !== 'Internal')
    .map((code) => faultWords(raw(code), '/state', words.t).what);
  expect(new Set(whats).size).toBe(whats.length);
});

test('what the Kernel says of the case stays, between what is so and what to do', () => {
  const error = new EscrowError('DependenciesUnusable', 'package-lock.json is of npm 6', 'Mend it and freeze again.');
  expect(said(error)).toBe(
    'The packages of this contract cannot be used. package-lock.json is of npm 6. Mend the file, then freeze the contract again.',
  );
});

test('of many files three are named', () => {
  const error = new EscrowError('BaseChanged', 'x', 'x', { paths: ['a', 'b', 'c', 'd'] });
  expect(said(error)).toMatch(/^Nothing was written: a, b, c, … changed/);
});

test('what the window found by itself is said as it was written', () => {
  expect(said(windowFault('InvalidContract', 'x.txt is not a contract file', 'Name another'))).toBe(
    'x.txt is not a contract file. Name another.',
  );
});
