import type { WallTime } from '../../protocol/primitives.ts';
import type { EngineApproval } from '../../protocol/status.ts';
import type { Store } from '../store/port.ts';

const stream = 'engines';

/**
 * The durable record of which servers on this machine a person approved as engine for chat completions. One stands at a
 * time: a new approval revokes the one before.
 */
export class EngineApprovals {
  readonly #store: Store;
  readonly #now: () => WallTime;

  constructor(store: Store, now: () => WallTime) {
    this.#store = store;
    this.#now = now;
  }

  /** All that were ever given, newest first. */
  all(): readonly EngineApproval[] {
    return this.#store.views('approval', { limit: 100 }).map((row) => row.json as unknown as EngineApproval);
  }

  /** The one that stands, or null. */
  current(): EngineApproval | null {
    return this.all().find((approval) => !approval.revoked) ?? null;
  }

  approve(given: Omit<EngineApproval, 'at' | 'revoked'>): EngineApproval {
    const approval: EngineApproval = { ...given, at: this.#now(), revoked: false };
    const former = this.all().filter((a) => !a.revoked && a.host !== approval.host);
    this.#append('engine.approved', { ...given }, [approval, ...former.map((a) => ({ ...a, revoked: true }))]);
    return approval;
  }

  /** Without effect where the host is not approved. */
  revoke(host: string, by: Pick<EngineApproval, 'reviewer' | 'channel'>): void {
    const held = this.all().find((a) => a.host === host && !a.revoked);
    if (held === undefined) return;
    this.#append('engine.revoked', { host, ...by }, [{ ...held, revoked: true }]);
  }

  #append(type: string, data: Readonly<Record<string, string | null>>, rows: readonly EngineApproval[]): void {
    const version = this.#store.load(stream).at(-1)?.version ?? 0;
    const updatedAt = this.#now();
    this.#store.append(stream, version, [{ type, data }], () =>
      rows.map((row) => ({
        kind: 'approval',
        key: row.host,
        root: '',
        createdAt: row.at,
        updatedAt,
        json: { ...row },
      })),
    );
  }
}
