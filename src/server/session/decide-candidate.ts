import type { CandidateDigest } from '../../protocol/primitives.ts';
import { unreachable } from '../../protocol/primitives.ts';
import type { DecisionView, IntegrationView } from '../../protocol/views.ts';
import type { CandidateCommand } from './commands.ts';
import { accept, refuse, wrong, type Decision } from './decision.ts';
import { verdictOf, type SessionState } from './state.ts';

/** Decides one command to a candidate of a session: verification, decision, integration. Pure. */
export function decideCandidate(state: SessionState, command: CandidateCommand): Decision {
  switch (command.kind) {
    case 'request-verification': {
      const candidate = state.candidates.find((c) => c.digest === command.candidate);
      if (candidate === undefined) return noCandidate(command.candidate);
      if (!candidate.eligible) {
        return refuse(
          'IncompleteCollection',
          'These bytes are kept as a diagnostic: the attempt did not end as a candidate with complete collection.',
          'Start another attempt.',
        );
      }
      if (state.verifications.some((v) => v.candidate === command.candidate && v.state !== 'done')) {
        return wrong('A verification of this candidate is under way.');
      }
      return accept({ type: 'verification.requested', data: { run: command.run, candidate: command.candidate } });
    }
    case 'start-verification': {
      const run = state.verifications.find((v) => v.run === command.run);
      if (run === undefined || run.state !== 'queued') return wrong('This verification is not waiting.');
      return accept({ type: 'verification.started', data: { run: command.run } });
    }
    case 'finish-verification': {
      const run = state.verifications.find((v) => v.run === command.run);
      if (run === undefined || run.state === 'done') return wrong('This verification is not under way.');
      const { result, reasons, checks, scope } = command;
      return accept({ type: 'verification.done', data: { run: command.run, result, reasons, checks, scope } });
    }
    case 'decide':
      return decideDecision(state, command.decision);
    case 'intend-integration': {
      const candidate = state.candidates.find((c) => c.digest === command.candidate);
      if (candidate === undefined) return noCandidate(command.candidate);
      if (candidate.decision?.kind !== 'accept') {
        return refuse('WrongState', 'Only an accepted candidate can be integrated.', 'Accept the candidate first.');
      }
      const latest = candidate.integrations.at(-1);
      // After a partial one somebody may have put the files back: the comparison of their bytes decides, not the record.
      if (latest !== undefined && inTheTree.has(latest.state))
        return wrong(`The last integration of this candidate is ${latest.state}.`);
      return accept({
        type: 'integration.intended',
        data: {
          id: command.id,
          candidate: command.candidate,
          files: candidate.files.map((f) => f.path),
          unsaved: command.unsaved,
        },
      });
    }
    case 'intend-undo': {
      const candidate = state.candidates.find((c) => c.integrations.some((i) => i.id === command.id));
      const row = candidate?.integrations.find((i) => i.id === command.id);
      if (row === undefined)
        return refuse('NotFound', `There is no integration ${command.id}.`, 'List the session again.');
      if (row.state !== 'integrated' && row.state !== 'undo_refused') {
        return refuse(
          'NotIntegrated',
          `This integration is ${row.state}; there is nothing to undo.`,
          'Nothing needs to be done.',
        );
      }
      if (candidate?.undoing !== null) return wrong('An undo is under way.');
      return accept({ type: 'integration.undoing', data: { id: command.id } });
    }
    case 'observe-integration': {
      const row = state.candidates.flatMap((c) => c.integrations).find((i) => i.id === command.id);
      if (row === undefined)
        return refuse('NotFound', `There is no integration ${command.id}.`, 'List the session again.');
      const undoing = command.state === 'undone' || command.state === 'undo_refused';
      const possible = undoing
        ? row.state === 'integrated' || row.state === 'undo_refused'
        : row.state === 'intended' || row.state === 'partial';
      if (!possible) {
        return undoing
          ? refuse(
              'NotIntegrated',
              `This integration is ${row.state}; there is nothing to undo.`,
              'Nothing needs to be done.',
            )
          : wrong(`This integration is ${row.state}.`);
      }
      return accept({
        type: 'integration.observed',
        data: {
          id: command.id,
          state: command.state,
          reason: command.reason,
          moved: command.moved,
          newFolders: command.newFolders ?? [],
        },
      });
    }
    default:
      return unreachable(command, 'candidate command');
  }
}

/** States of an integration in which its bytes are in the working tree, or may be on their way. */
const inTheTree: ReadonlySet<IntegrationView['state']> = new Set(['intended', 'integrated', 'undo_refused']);

const noCandidate = (digest: CandidateDigest): Decision =>
  refuse(
    'NotFound',
    `There is no candidate ${digest} in this session.`,
    'Open the session again: a newer candidate may have come.',
  );

function decideDecision(state: SessionState, decision: Omit<DecisionView, 'at'>): Decision {
  const candidate = state.candidates.find((c) => c.digest === decision.candidate);
  if (candidate === undefined) return noCandidate(decision.candidate);
  if (candidate.decision !== null) {
    return refuse(
      'AlreadyDecided',
      `This candidate was ${candidate.decision.kind}ed by ${candidate.decision.reviewer}.`,
      'Start another attempt, or undo the integration.',
    );
  }
  if (decision.kind === 'reject')
    return accept({ type: 'decision.recorded', data: { ...decision, verification: null } });
  if (!candidate.eligible) {
    return refuse(
      'IncompleteCollection',
      'These bytes are a diagnostic, not a candidate: they cannot be accepted.',
      'Start another attempt.',
    );
  }
  if (state.closed !== null) return wrong('The session is closed: its bytes may have been let go.');
  if (state.candidates.some((c) => c.decision?.kind === 'accept'))
    return wrong('Another candidate of this session has been accepted.');
  const run = state.verifications.find((v) => v.run === decision.verification);
  if (run === undefined || run.candidate !== decision.candidate || run.state !== 'done') {
    return refuse(
      'NotVerified',
      'The acceptance names no finished verification of these bytes.',
      'Verify the candidate, then decide.',
    );
  }
  if (state.verifications.some((v) => v.candidate === decision.candidate && v.state !== 'done')) {
    return refuse(
      'NotVerified',
      'These bytes are being verified again.',
      'Wait for the end of that verification, then decide.',
    );
  }
  const outside = run.scope.filter(({ outcome }) => outcome === 'outside').map(({ path }) => path);
  if (outside.length > 0) {
    return refuse(
      'OutOfScope',
      `This candidate changes what its contract does not let it change: ${outside.join(', ')}.`,
      'Reject the candidate and say what must stay, or write a contract that lets more change.',
    );
  }
  const verdict = verdictOf(state, decision.candidate);
  if (run.result !== 'passed' || verdict !== 'passed') {
    return refuse(
      'NotVerified',
      verdict === 'flaky'
        ? 'This candidate passed once and failed once: it is flaky.'
        : `Verification of these bytes: ${run.result}.`,
      'Reject the candidate, or verify it again.',
    );
  }
  return accept({ type: 'decision.recorded', data: decision });
}
