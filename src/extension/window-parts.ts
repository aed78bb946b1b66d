import type * as vscode from 'vscode';
import type { ClientId } from '../protocol/primitives.ts';
import type { PlainTexts } from './documents/plain-texts.ts';
import type { CommandId } from './ids.ts';
import type { KernelLink } from './kernel/kernel-link.ts';
import type { KernelObserver } from './kernel/kernel-observer.ts';
import type { Operations } from './operations.ts';
import type { EvidenceDocuments } from './review/evidence-documents.ts';
import type { ReviewEditor } from './review/review-editor.ts';
import type { UnseenWatch } from './review/unseen-watch.ts';
import type { TreeWords } from './trees/tree-node.ts';
import type { StateStore } from './window-state.ts';

/** What commands work with; built and owned by `escrow-window.ts`. */
export interface WindowParts {
  readonly context: vscode.ExtensionContext;
  readonly log: vscode.LogOutputChannel;
  readonly clientId: ClientId;
  readonly store: StateStore;
  readonly link: KernelLink;
  readonly observer: KernelObserver;
  readonly operations: Operations;
  readonly review: ReviewEditor;
  readonly unseen: UnseenWatch;
  readonly evidence: EvidenceDocuments;
  readonly texts: PlainTexts;
  readonly words: TreeWords;
  /** Connects when there is no connection yet; resolves when there is one. Throws EscrowError. */
  readonly ensureConnected: () => Promise<void>;
  /** Shows and selects a row of the Sessions view. */
  readonly revealSession: (id: string) => Promise<void>;
}

/** Handlers by command. An error they throw is shown by the one place that registers them. */
export type CommandTable = Partial<Record<CommandId, (...args: readonly unknown[]) => Promise<void>>>;
