import { expect, test } from 'vitest';
import { faultWords, inOneLine } from '../../../src/extension/fault-words.ts';
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
  expect(said(error)).toBe('The Kernel could not be started with /x. Set escrow.kernel.node.');
});

test('a full disk is named by the folder that lies on it; a full allowance is not taken for one', () => {
  const disk = new EscrowError('StorageFull', 'No space left while taking the lock.', 'x', { reason: 'disk' });
  expect(said(disk)).toBe('No space is left on the disk that holds /state. Free space there.');
  const allowance = new EscrowError('StorageFull', 'The session may keep no more.', 'Close it', {
    reason: 'allowance',
  });
  expect(said(allowance)).toBe('The session may keep no more. Close it.');
});

test('a missing image is prepared with the window’s own button, unless its base is gone for good', () => {
  const next = 'Prepare the sandbox image: escrow image prepare.';
  expect(said(new EscrowError('ImageUnavailable', 'There is no base image yet.', next, { pinned: null }))).toBe(
    'There is no base image yet. Prepare the sandbox image.',
  );
  const gone = new EscrowError('ImageUnavailable', 'The base is gone.', 'Freeze it again.', { pinned: 'sha256:1' });
  expect(said(gone)).toBe('The base is gone. Freeze it again.');
});

test('two sentences never run into each other', () => {
  for (const code of Object.keys(errorCodes) as ErrorCode[]) {
    expect(said(new EscrowError(code, 'it is refused: because', 'Do this'))).toMatch(/^\p{L}.*[.!?…] \p{Lu}.*\.$/u);
  }
});
