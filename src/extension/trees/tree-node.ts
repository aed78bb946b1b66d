import type {
  AttemptId,
  CandidateDigest,
  IntegrationId,
  RelPath,
  SessionId,
  Sha256,
} from '../../protocol/primitives.ts';
import type { CommandId } from '../ids.ts';

/** `vscode.l10n.t`, handed in: what builds trees needs no VS Code. */
export type Localize = (message: string, ...args: (string | number | boolean)[]) => string;

export interface TreeWords {
  readonly t: Localize;
  /** A time of day, or with its date when it was another day. */
  readonly time: (at: number) => string;
  readonly number: (value: number) => string;
  /** The state folder, for messages that name it. */
  readonly home: string;
}

/** What a row is about; commands from menus get it. */
export type Target =
  | { readonly kind: 'session'; readonly session: SessionId }
  | { readonly kind: 'pending'; readonly session: SessionId; readonly attempt: AttemptId; readonly since: number }
  | { readonly kind: 'attempt'; readonly session: SessionId; readonly attempt: AttemptId }
  | { readonly kind: 'candidate'; readonly session: SessionId; readonly candidate: CandidateDigest }
  | {
      readonly kind: 'candidate-file';
      readonly session: SessionId;
      readonly candidate: CandidateDigest;
      readonly path: RelPath;
    }
  | { readonly kind: 'integration'; readonly session: SessionId; readonly integration: IntegrationId }
  | { readonly kind: 'workspace-file'; readonly session: SessionId; readonly path: RelPath }
  | { readonly kind: 'output'; readonly name: string; readonly sha256: Sha256; readonly size: number }
  | { readonly kind: 'text'; readonly title: string; readonly text: string }
  | { readonly kind: 'contract'; readonly root: string; readonly path: string }
  | { readonly kind: 'operation'; readonly id: number }
  | { readonly kind: 'setting'; readonly name: string }
  | { readonly kind: 'none' };

export type Tone = 'plain' | 'good' | 'bad' | 'warning' | 'muted';

export interface Icon {
  /** A product icon's name. */
  readonly id: string;
  readonly tone: Tone;
}

/** Something goes on. */
export const spinning: Icon = { id: 'loading~spin', tone: 'plain' };

/** One row of a tree, ready to show: every text has passed `visible`. */
export interface TreeNode {
  /** Stable over refreshes, so that VS Code keeps what is expanded and selected. */
  readonly id: string;
  readonly label: string;
  readonly description: string;
  /** Plain text, never markdown. */
  readonly tooltip: string;
  /** What a screen reader says; label and description by default. */
  readonly spoken: string | null;
  readonly icon: Icon | null;
  /** `viewItem` in when-clauses: words with semicolons around each. */
  readonly context: string;
  readonly collapsible: 'no' | 'collapsed' | 'expanded';
  /** `load`: asked for when the row is expanded the first time. */
  readonly children: readonly TreeNode[] | 'load';
  readonly target: Target;
  readonly command: CommandId | null;
  /** Says that something goes on at this moment. Such a row must never stand unchanged when nobody knows. */
  readonly live: boolean;
  /** False where it is not what the Kernel says now: greyed. */
  readonly current: boolean;
}

/** A row with the usual defaults. */
export function node(fields: Pick<TreeNode, 'id' | 'label'> & Partial<TreeNode>): TreeNode {
  const children = fields.children ?? [];
  const { collapsible = children.length > 0 ? 'collapsed' : 'no' } = fields;
  return {
    description: '',
    tooltip: fields.label,
    spoken: null,
    icon: null,
    context: '',
    target: { kind: 'none' },
    command: null,
    live: false,
    current: true,
    ...fields,
    children,
    collapsible,
  };
}

/** `;a;b;`: a when-clause asks with `viewItem =~ /;b;/`, so that no word is taken for a part of another. */
export function contextWords(...words: readonly (string | false)[]): string {
  const kept = words.filter((word) => word !== false);
  return kept.length === 0 ? '' : `;${kept.join(';')};`;
}

/** One row as it was, with why it is not so now as the first thing below it. */
export function notCurrent(row: TreeNode, why: string, t: Localize): readonly TreeNode[] {
  return stale([row], t).map((old) => ({
    ...old,
    spoken: t('not current: {0}', old.spoken ?? [old.label, old.description].filter((part) => part !== '').join(', ')),
    children: [
      node({
        id: `${row.id}/not-current`,
        label: t('Not current'),
        description: why,
        tooltip: why,
        icon: { id: 'warning', tone: 'warning' },
      }),
      ...(old.children === 'load' ? [] : old.children),
    ],
    collapsible: 'expanded' as const,
  }));
}

/** The same rows as last heard: greyed, nothing moves, and what went on is said to have been so, not to be so. */
export function stale(rows: readonly TreeNode[], t: Localize): readonly TreeNode[] {
  return rows.map((row) => {
    // A row that was made so already has its words.
    const live = row.current && (row.live || row.icon?.id.endsWith('~spin') === true);
    return {
      ...row,
      live: false,
      current: false,
      description: live ? t('last seen: {0}', row.description) : row.description,
      icon: row.icon === null ? null : { id: live ? 'question' : row.icon.id, tone: 'muted' },
      // Nothing that changes anything is offered on what may be long over; opening what was read is.
      context: row.context.includes(';text;') ? row.context : '',
      children: row.children === 'load' ? 'load' : stale(row.children, t),
    };
  });
}
