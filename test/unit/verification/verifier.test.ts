import { expect, it } from 'vitest';
import type { CandidateDigest, SessionId } from '../../../src/protocol/primitives.ts';
import type { Command } from '../../../src/server/session/commands.ts';
import { Slots } from '../../../src/server/session/slots.ts';
import { at } from '../../fixtures/session.ts';
import { Verifier, type VerifierDeps } from '../../../src/server/verification/verifier.ts';

it('begins nothing during a drain: a candidate that comes then is recorded as not verified', async () => {
  const commands: Command[] = [];
  const slots = new Slots(1, () => undefined);
  const view = { candidates: [], verifications: [], attempts: [], title: 'a title' };
  const deps = {
    slots,
    sessions: { get: () => view, execute: (_: SessionId, command: Command) => void commands.push(command) },
  } as unknown as VerifierDeps;
  const verifier = new Verifier(deps);
  verifier.cancelAll();
  // The record is no part of this test: that it is looked for afterwards is.
  await expect(verifier.verify('ses_0000000000' as SessionId, 'c' as CandidateDigest)).rejects.toThrow(/vanished/);
  expect(commands).toMatchObject([
    { kind: 'request-verification' },
    { kind: 'finish-verification', result: 'incomplete', reasons: expect.arrayContaining(['Cancelled']) as string[] },
  ]);
  expect(slots.active).toEqual([]);
});

it.each([
  ['execution is turned off', () => false, false],
  ['it drains', () => true, true],
])('where %s, what a candidate is owed is left to a later Kernel', (_, mayBegin, drains) => {
  const owed = at('settled').state;
  const begun: string[] = [];
  const verifier = new Verifier({
    mayBegin,
    sessions: { get: () => owed, execute: (_id: SessionId, command: Command) => void begun.push(command.kind) },
    tasks: { own: (what: string) => void begun.push(what) },
  } as unknown as VerifierDeps);
  if (drains) verifier.cancelAll();
  verifier.verifyOwed(owed.id);
  expect(begun).toEqual([]);
});
