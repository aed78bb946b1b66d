import { protocolVersion } from '../protocol/methods.ts';
import { productVersion } from '../protocol/version.ts';
import type { KernelStatus } from '../protocol/status.ts';
import type { HealthWatch } from './health.ts';
import type { ConnectedClient } from './rpc/port.ts';
import type { SandboxService } from './sandbox/port.ts';
import type { RunLedger } from './sandbox/run-ledger.ts';
import type { SalvageBook } from './session/salvaged.ts';
import type { Sessions } from './session/sessions.ts';
import type { Slots } from './session/slots.ts';
import { openAttempt } from './session/state.ts';
import type { KernelSettings } from './settings.ts';
import type { Store } from './store/port.ts';

export interface KernelStatusDeps {
  readonly store: Store;
  readonly home: string;
  readonly instanceId: string;
  readonly settings: KernelSettings;
  readonly startedAt: number;
  readonly draining: () => boolean;
  readonly clients: () => readonly ConnectedClient[];
  readonly health: HealthWatch;
  readonly sandbox: SandboxService;
  readonly sessions: Sessions;
  readonly runs: RunLedger;
  readonly slots: Slots;
  readonly salvaged: SalvageBook;
}

const mostSalvaged = 20;

/** What the Kernel says of itself now. Containers are looked up each time; null where the engine does not answer. */
export async function kernelStatus(deps: KernelStatusDeps): Promise<KernelStatus> {
  const { store, home, instanceId, settings, startedAt, draining, clients, health } = deps;
  const { sandbox, sessions, runs, slots, salvaged } = deps;
  const { engine, image, inference } = health.parts;
  const containers = await sandbox.list().catch(() => null);
  const ours = containers?.filter((c) => c.ours) ?? null;
  const known = new Set([...sessions.open().flatMap((id) => openAttempt(sessions.get(id))?.id ?? []), ...runs.live()]);
  return {
    version: productVersion,
    protocol: protocolVersion,
    pid: process.pid,
    instanceId,
    epoch: store.epoch,
    startedAt,
    home,
    clients: clients().map(({ clientId, hello }) => ({ clientId, kind: hello.kind, name: hello.name })),
    executionEnabled: settings.executionEnabled,
    draining: draining(),
    engine,
    image,
    inference,
    storage: health.storage(),
    queue: [...slots.waiting],
    active: [...slots.active],
    pending: sessions.open().flatMap((id) => {
      const open = openAttempt(sessions.get(id));
      return open === undefined || open.pending === null
        ? []
        : [{ session: id, attempt: open.id, waitingFor: open.pending.waitingFor }];
    }),
    strays: (ours ?? [])
      // One without a purpose is no sandbox: an image is prepared in it.
      .filter((c) => c.purpose !== null && (c.owner === null || !known.has(c.owner)))
      .map(({ name, engineId }) => ({ name, engineId })),
    salvaged: salvaged
      .list(mostSalvaged)
      .toReversed()
      .map(({ name, at, files, fault }) => ({ name, at, files, fault })),
    containers: ours === null ? null : ours.length,
  };
}
