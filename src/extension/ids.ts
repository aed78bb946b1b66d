/**
 * Every id that `package.json` and the code share. `test/unit/extension/contributions.test.ts` compares both, so that a
 * command without a title or a when-clause on an unknown key is a failing test.
 */
export const commands = {
  newContract: 'escrow.contract.new',
  newContractFromSelection: 'escrow.contract.newFromSelection',
  checkContract: 'escrow.contract.check',
  freezeContract: 'escrow.contract.freeze',
  runBaseline: 'escrow.contract.baseline',
  openContract: 'escrow.contract.open',
  openExample: 'escrow.example.open',
  startSession: 'escrow.session.start',
  cancelSession: 'escrow.session.cancel',
  newAttempt: 'escrow.session.attempt',
  attachSession: 'escrow.session.attach',
  detachSession: 'escrow.session.detach',
  extendBudget: 'escrow.session.extend',
  reconcileAttempt: 'escrow.session.reconcile',
  closeSession: 'escrow.session.close',
  openCandidate: 'escrow.candidate.open',
  openCandidateFile: 'escrow.candidate.openFile',
  showEvidence: 'escrow.candidate.evidence',
  acceptCandidate: 'escrow.candidate.accept',
  rejectCandidate: 'escrow.candidate.reject',
  verifyCandidate: 'escrow.candidate.verify',
  integrateCandidate: 'escrow.candidate.integrate',
  undoIntegration: 'escrow.integration.undo',
  openWorkspaceFile: 'escrow.workspace.openFile',
  showOutput: 'escrow.check.showOutput',
  showText: 'escrow.activity.showText',
  cancelOperation: 'escrow.operation.cancel',
  refresh: 'escrow.refresh',
  showLog: 'escrow.log.show',
  showKernelLog: 'escrow.kernel.log',
  startKernel: 'escrow.kernel.start',
  restartKernel: 'escrow.kernel.restart',
  doctor: 'escrow.kernel.doctor',
  openSetting: 'escrow.health.openSetting',
  approveEngine: 'escrow.engine.approve',
  revokeEngine: 'escrow.engine.revoke',
  prepareImage: 'escrow.image.prepare',
  listImages: 'escrow.image.list',
  pruneImages: 'escrow.image.prune',
  openWalkthrough: 'escrow.walkthrough.open',
} as const;
export type CommandId = (typeof commands)[keyof typeof commands];

export const views = {
  sessions: 'escrow.sessions',
  models: 'escrow.models',
  health: 'escrow.health',
} as const;

export const viewContainer = 'escrow';

/** Context keys that the extension sets and when-clauses read. */
export const contextKeys = {
  /** `off`, `connecting`, `connected` or `lost`. */
  connection: 'escrow.connection',
  /** What stands in the way before anything is asked of the Kernel: `folder`, `trust`, `git` or `nothing`. */
  missing: 'escrow.missing',
  executionEnabled: 'escrow.executionEnabled',
  /** A candidate is on screen in a diff of ours. */
  reviewOpen: 'escrow.review.open',
  /** Nobody has decided about it yet. */
  reviewUndecided: 'escrow.review.undecided',
  reviewCanAccept: 'escrow.review.canAccept',
  reviewCanReject: 'escrow.review.canReject',
  reviewCanVerify: 'escrow.review.canVerify',
  reviewCanIntegrate: 'escrow.review.canIntegrate',
  reviewCanUndo: 'escrow.review.canUndo',
  /** There is something in this window that the command could act on; what the palette goes by. */
  canCancel: 'escrow.can.cancel',
  canAttempt: 'escrow.can.attempt',
  canAttach: 'escrow.can.attach',
  canDetach: 'escrow.can.detach',
  canExtend: 'escrow.can.extend',
  canClose: 'escrow.can.close',
  canOpenCandidate: 'escrow.can.openCandidate',
  canAccept: 'escrow.can.accept',
  canReject: 'escrow.can.reject',
  canVerify: 'escrow.can.verify',
  canIntegrate: 'escrow.can.integrate',
  canUndo: 'escrow.can.undo',
  engineReady: 'escrow.engineReady',
  imageReady: 'escrow.imageReady',
  inferenceReady: 'escrow.inferenceReady',
  /** Moves with every round trip that proves the window; nothing reads it. */
  presence: 'escrow.presence',
} as const;

export const settings = {
  executionEnabled: 'escrow.execution.enabled',
  kernelNode: 'escrow.kernel.node',
  engineHost: 'escrow.engine.host',
  ollamaHost: 'escrow.inference.ollamaHost',
  onWindowClose: 'escrow.onWindowClose',
  graceSeconds: 'escrow.window.graceSeconds',
  reviewerName: 'escrow.reviewer.name',
} as const;

/** Read-only documents: bytes that the Kernel keeps, and bytes of a sandbox's workspace. */
export const artefactScheme = 'escrow-artefact';
export const workspaceScheme = 'escrow';
/** Words of a model or a program that a row shows in short. */
export const textScheme = 'escrow-text';
/** What preparing an image would do, for a person who is asked. Its fragment: the contract's digest, where one asked. */
export const imagePlanScheme = 'escrow-image-plan';
/** What Escrow has in the container engine, and what of it a prune would remove. */
export const imagesScheme = 'escrow-images';
/** What there is to know before a decision about a candidate, as one text. */
export const evidenceScheme = 'escrow-evidence';
/** Only names rows of our trees, so that rows that are not current can be greyed. */
export const rowScheme = 'escrow-row';

export const contractLanguage = 'escrow-contract';
/** Output of programs and words of models: plain, and no links in it. */
export const outputLanguage = 'escrow-output';
export const evidenceLanguage = 'escrow-evidence';
export const contractGlob = '**/*.contract.jsonc';
export const walkthroughId = 'escrow.firstSteps';
