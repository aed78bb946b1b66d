import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { homedir, tmpdir } from 'node:os';
import { EscrowError } from '../../protocol/errors.ts';
import { Policy, replayAudit } from '../../protocol/executor.ts';
import { InsideReport } from '../../protocol/executor-answers.ts';
import { withPoints } from '../crash-points.ts';
import { unreachable } from '../../protocol/primitives.ts';
import { AuditChain } from './audit-chain.ts';
import { Channel, newChannelKey, type Welcome } from './channel.ts';
import { declaredMode, judgeCollection } from './collection.ts';
import { ContainerWatches } from './container-watches.ts';
import { ContainerEngine, type CreateOptions, type InspectedContainer } from './engine.ts';
import { EngineFault } from './engine-fault.ts';
import { chooseEngine, surroundingsHere } from './engine-choice.ts';
import { readByExec } from './exec-reader.ts';
import { defaultImage, findBase, resolveImage } from './image.ts';
import { containerLabels, isOurs, labelKeys, productLabel, purposeOf } from './labels.ts';
import { readBack } from './limits.ts';
import { faultOf, LiveSandbox } from './live-sandbox.ts';
import { place } from './placing.ts';
import {
  SandboxFault,
  type Collection,
  type ObservedContainer,
  type Sandbox,
  type SandboxService,
  type SandboxServiceOptions,
  type SandboxSpec,
} from './port.ts';
import { preflightOf } from './preflight.ts';
import { asDockerSays, podmanClosesInput, podmanShape, seccompFile, sweepVolumes } from './podman.ts';
import { createOptions, profileDigestOf, profileNamed, type SandboxProfile } from './profile.ts';
import { salvageByExec } from './salvage.ts';
import { killAndConfirm, removeAndConfirm } from './stop.ts';

/** Calls that change a container or on which the record of one rests. */
const engineCalls = new Set(['create', 'start', 'attach', 'inspect', 'kill', 'remove', 'list', 'exec']);
const nonceVariable = 'ESCROW_NONCE';

/** The container side of the Kernel: one engine, our containers in it, their channels. */
export function createSandboxService(options: SandboxServiceOptions): SandboxService {
  const connected = connectEngine(options.engineHost);
  const { at } = options;
  const connection =
    at === undefined || connected instanceof EngineFault ? connected : withPoints(connected, 'engine', engineCalls, at);
  const engine = (): ContainerEngine => {
    if (connection instanceof EngineFault) throw connection;
    return connection;
  };
  /** Secrets of our own attachments, so that this Kernel can attach again under its own epoch. */
  const keys = new Map<string, string>();
  /** Chains that this Kernel saw from their start. */
  const chains = new Map<string, AuditChain>();
  const watches = new ContainerWatches(engine, options.hostMemory ?? (async () => null));

  /** Engine ids of the names that this Kernel has attached to. */
  const ids = new Map<string, string>();
  /** Our attachments that are still open. */
  const attached = new Set<{ readonly engineId: string; readonly name: string; readonly channel: Channel }>();

  const attach = async (engineId: string, name: string, nonce: string, epoch: number, chain: AuditChain) => {
    const key = keys.get(`${engineId} ${epoch}`) ?? newChannelKey();
    keys.set(`${engineId} ${epoch}`, key);
    const stream = await engine().attach(engineId);
    const { log } = options;
    const channel = new Channel({
      stream,
      nonce,
      epoch,
      key,
      chain,
      log: (level, text, data) => log(level, text, data),
      onUse: (use) => watches.sampled(engineId, use),
      ...(at === undefined ? {} : { at }),
    });
    const entry = { engineId, name, channel };
    ids.set(name, engineId);
    attached.add(entry);
    void channel.ended.then((end) => {
      watches.channelEnded(engineId, end);
      attached.delete(entry);
    });
    return channel;
  };
  /** On Docker 20.10 an attachment that is not read blocks even a kill: ours are gone before. */
  const detachAll = (engineIdOrName: string) => {
    for (const { engineId, name, channel } of attached) {
      if (engineId === engineIdOrName || name === engineIdOrName) channel.close();
    }
  };
  const forget = (engineIdOrName: string) => {
    const engineId = ids.get(engineIdOrName) ?? engineIdOrName;
    for (const [name, id] of ids) if (id === engineId) ids.delete(name);
    for (const key of keys.keys()) if (key.startsWith(`${engineId} `)) keys.delete(key);
    chains.delete(engineId);
    watches.forget(engineId);
  };

  /** CPUs of the engine's machine: asked once, and again after a container could not be made. */
  let askedCpus: Promise<number> | undefined;
  const engineCpus = (): Promise<number> => {
    askedCpus ??= engine()
      .info()
      .then(({ cpus }) => cpus);
    return askedCpus;
  };

  /** Containers whose volumes are there before them. */
  const making = new Set<string>();
  const create = async (wanted: CreateOptions, profile: SandboxProfile): Promise<string> => {
    if ((await engine().flavour()) === 'docker') return engine().create(wanted);
    const name = wanted.name ?? '';
    // Of Kernels that died between a volume and its container.
    await sweepVolumes(engine(), options.homeId, making);
    making.add(name);
    try {
      const shape = podmanShape(wanted, profile, await seccompFile(options.stateFolder ?? tmpdir()));
      for (const volume of shape.volumes) await engine().createVolume(volume.name, volume.options, volume.labels);
      return await engine().create(shape.options);
    } catch (error) {
      making.delete(name);
      // Nobody will ask for a container that never was.
      await sweepVolumes(engine(), options.homeId, making);
      throw error;
    } finally {
      making.delete(name);
    }
  };

  return {
    preflight: () => preflightOf(connection, options.now, existsSync),
    image: (wanted) => coded(() => resolveImage(engine(), wanted ?? defaultImage, options.executorPath)),
    baseOf: (reference) =>
      coded(async () => {
        const found = await findBase(engine(), { base: reference, pinned: null, language: null });
        return found === undefined ? undefined : { reference: found.reference, digest: found.id };
      }),
    profileDigest: (profile) => profileDigestOf(profileNamed(profile)),

    async provision(spec, onFact, signal) {
      const steps = new Steps(signal);
      const profile = profileNamed(spec.profile);
      const policy = policyOf(spec);
      const nonce = randomBytes(16).toString('hex');
      try {
        const cpus = await steps.next(engineCpus());
        const engineId = await steps.next(
          create(
            createOptions(profile, {
              name: spec.name,
              image: spec.image.digest,
              labels: containerLabels({ ...spec, homeId: options.homeId, instanceId: options.instanceId }),
              nonce,
              engineCpus: cpus,
            }),
            profile,
          ),
        );
        await onFact({ kind: 'created', engineId });
        await watches.begin(engineId);
        const chain = new AuditChain(nonce, true);
        const channel = await attach(engineId, spec.name, nonce, spec.epoch, chain);
        try {
          chains.set(engineId, chain);
          await steps.next(engine().start(engineId));
          // The engine is looked at while the supervisor comes up and answers.
          const looking = engine().inspect(engineId);
          looking.catch(() => {});
          await onFact({ kind: 'started' });
          const welcome = await steps.next(channel.hello());
          checkWelcome(welcome, spec, chain);
          const probing = channel.request('probe', {});
          probing.catch(() => {});
          await onFact({ kind: 'attached', nonce });
          const inspected = await steps.next(looking);
          if (inspected === undefined) throw new SandboxFault('engine', 'the container is gone');
          checkImage(inspected, spec);
          await watches.found(inspected);
          const outside = (await engine().flavour()) === 'podman' ? await asDockerSays(inspected, profile) : inspected;
          const probe = await steps.next(probing);
          const limits = readBack(profile, cpus, InsideReport.parse(JSON.parse(probe.bytes.toString('utf8'))), outside);
          await onFact({ kind: 'limits', limits });
          const missing = limits.filter(({ inForce }) => !inForce);
          if (missing.length > 0) {
            const list = missing.map(
              ({ name, wanted, inside, outside }) => `${name} (${wanted}: ${inside}, ${outside})`,
            );
            throw new SandboxFault('limit-not-in-force', `not in force: ${list.join('; ')}`);
          }
          const placed = await place(channel, policy, spec, (step) => steps.next(step));
          await onFact({ kind: 'placed', ...placed });
          return new LiveSandbox({
            name: spec.name,
            engineId,
            nonce,
            channel,
            chain,
            policy,
            baseline: spec.files,
            limits,
            mayChange: spec.mayChange ?? Infinity,
            recording: () => watches.recording(engineId),
          });
        } catch (error) {
          channel.close();
          throw error;
        }
      } catch (error) {
        askedCpus = undefined;
        throw sandboxFault(error);
      }
    },

    async reattach(spec, engineId, epoch, recorded): Promise<Sandbox | null> {
      try {
        const found = await engine().inspect(engineId);
        if (found === undefined || !found.running || found.state !== 'running') return null;
        if (!isOurs(found.labels, options.homeId)) throw new SandboxFault('engine', `${found.name} is not ours`);
        if ((await engine().flavour()) === 'podman') throw new SandboxFault('channel', podmanClosesInput);
        const nonce = nonceOf(found);
        const known = chains.get(found.id);
        const chain = known ?? new AuditChain(nonce, false);
        chains.set(found.id, chain);
        await watches.found(found);
        const channel = await attach(found.id, found.name, nonce, epoch, chain);
        try {
          const welcome = await channel.hello(true);
          if (welcome.executor !== spec.image.executorDigest) {
            throw new SandboxFault('invalid', 'the executor in the container is another one');
          }
          // Of our own chain we know better than the record does.
          const before = known === undefined ? recorded : { entries: known.entries, head: known.head };
          if (known === undefined || welcome.entries > known.entries) {
            chain.adopt(welcome.entries, welcome.head, before);
          }
          const policy = policyOf(spec);
          return new LiveSandbox({
            name: spec.name,
            engineId: found.id,
            nonce,
            channel,
            chain,
            policy,
            baseline: spec.files,
            limits: [],
            mayChange: spec.mayChange ?? Infinity,
            recording: () => watches.recording(found.id),
          });
        } catch (error) {
          channel.close();
          throw error;
        }
      } catch (error) {
        throw sandboxFault(error);
      }
    },

    async collectByExec(spec, engineId, recorded, into): Promise<Collection> {
      const nothing = {
        via: 'none',
        quiet: false,
        report: null,
        files: [],
        auditLog: null,
        executorHead: null,
      } as const;
      const policy = policyOf(spec);
      let nonce = '';
      let gathered;
      try {
        const found = await engine().inspect(engineId);
        if (found === undefined) gathered = { ...nothing, fault: 'the container is gone' };
        else if (!isOurs(found.labels, options.homeId)) gathered = { ...nothing, fault: 'not ours' };
        else {
          nonce = nonceOf(found);
          gathered = await readByExec(engine(), found.id, policy, into);
        }
      } catch (error) {
        gathered = { ...nothing, fault: `engine: ${error instanceof Error ? error.message : String(error)}` };
      }
      const files = gathered.files.map((file) => ({ ...file, mode: declaredMode(file.path, file.mode, spec.files) }));
      const own = chains.get(engineId);
      const chain = own ?? new AuditChain(nonce, false);
      if (gathered.auditLog !== null) {
        const replay = replayAudit(Buffer.from(gathered.auditLog).toString('utf8'), nonce);
        // Of our own chain we know better than the record does; the log may have grown since its channel broke.
        const before = own === undefined ? recorded : { entries: own.entries, head: own.head };
        if (own === undefined || replay.entries.length > own.entries) {
          chain.adopt(replay.entries.length, replay.head, before);
        }
      }
      const judged = judgeCollection({ ...gathered, files }, { nonce, baseline: spec.files, policy, chain });
      return { ...judged, monitor: watches.recording(engineId) };
    },

    monitored: (engineId) => watches.recording(engineId),

    async salvage(engineId, into) {
      const nothing = (fault: string) => ({ files: [], auditLog: null, fault });
      try {
        const found = await engine().inspect(engineId);
        if (found === undefined) return nothing('the container is gone');
        if (!isOurs(found.labels, options.homeId)) return nothing('not ours');
        return await salvageByExec(engine(), found.id, nonceOf(found), into);
      } catch (error) {
        return nothing(error instanceof Error ? error.message : String(error));
      }
    },

    async kill(engineIdOrName) {
      if (connection instanceof EngineFault) return { kind: 'unconfirmed', reason: connection.message };
      detachAll(engineIdOrName);
      let id = '';
      const seen = await killAndConfirm(connection, options.homeId, engineIdOrName, options.confirmMs, {
        found: (before, kill) => {
          id = before.id;
          return watches.beforeEnd(before, kill);
        },
        acknowledged: (before) => watches.killed(before.id),
      });
      switch (seen.kind) {
        case 'stopped':
          return { ...seen, oom: await watches.word(id, seen.oomKilled) };
        case 'absent':
          forget(engineIdOrName);
          return seen;
        case 'unconfirmed':
          return seen;
        default:
          return unreachable(seen, 'stop');
      }
    },

    async remove(engineIdOrName) {
      if (connection instanceof EngineFault) return { kind: 'unknown', reason: connection.message };
      const seen = await removeAndConfirm(connection, options.homeId, engineIdOrName, options.confirmMs);
      if (seen.kind === 'absent') {
        forget(engineIdOrName);
        if ((await connection.flavour().catch(() => 'docker')) === 'podman') {
          await sweepVolumes(connection, options.homeId, making);
        }
      }
      return seen;
    },

    list: () =>
      coded(async () => {
        const found = await engine().list([`${labelKeys.product}=${productLabel}`]);
        return found
          .filter(({ labels }) => labels[labelKeys.home] !== undefined)
          .map((container): ObservedContainer => {
            const { labels } = container;
            const epoch = labels[labelKeys.epoch];
            return {
              name: container.name,
              engineId: container.id,
              state: container.state,
              labels,
              purpose: purposeOf(labels),
              owner: labels[labelKeys.owner] ?? null,
              session: labels[labelKeys.session] ?? null,
              epoch: epoch === undefined || !/^\d+$/.test(epoch) ? null : Number(epoch),
              ours: isOurs(labels, options.homeId),
            };
          });
      }),
  };
}

/** The engine that a setting (null: none) leads to, or why none can be spoken to. */
export function connectEngine(engineHost: string | null): ContainerEngine | EngineFault {
  try {
    return new ContainerEngine(chooseEngine(engineHost, surroundingsHere(homedir())));
  } catch (error) {
    if (EngineFault.is(error)) return error;
    throw error;
  }
}

/** Gives up between steps once the caller has aborted; a step that has an effect is always awaited. */
class Steps {
  readonly #signal: AbortSignal | undefined;
  constructor(signal: AbortSignal | undefined) {
    this.#signal = signal;
  }
  async next<T>(step: Promise<T>): Promise<T> {
    const result = await step;
    if (this.#signal?.aborted === true) throw new SandboxFault('cancelled', 'cancelled while the sandbox was made');
    return result;
  }
}

function policyOf(spec: SandboxSpec): Policy {
  const policy = {
    readable: spec.readable,
    writable: spec.writable,
    scratch: spec.scratch,
    ...(spec.modules === undefined || spec.modules.length === 0 ? {} : { modules: spec.modules }),
    commands: spec.commands.map(({ id, argv, timeoutS, captureKiB, env }) => ({
      id,
      argv,
      timeoutMs: Math.round(timeoutS * 1000),
      captureBytes: captureKiB * 1024,
      env,
    })),
  };
  const misfit = Policy.misfit(policy);
  if (misfit === undefined) return policy;
  throw new SandboxFault('invalid', `the sandbox is not described well: ${misfit}`);
}

function checkWelcome(welcome: Welcome, spec: SandboxSpec, chain: AuditChain): void {
  if (welcome.executor !== spec.image.executorDigest) {
    throw new SandboxFault('invalid', 'the executor in the image is not the one that this Kernel ships');
  }
  if (welcome.entries !== 0 || welcome.head !== chain.head || welcome.phase !== 'new') {
    throw new SandboxFault('channel', 'somebody has spoken to the supervisor before us');
  }
}

function checkImage(inspected: InspectedContainer, spec: SandboxSpec): void {
  if (inspected.image !== spec.image.digest) throw new SandboxFault('engine', 'the container has another image');
}

function nonceOf(found: InspectedContainer): string {
  const variable = found.environment.find((text) => text.startsWith(`${nonceVariable}=`));
  const nonce = variable?.slice(nonceVariable.length + 1) ?? '';
  if (!/^[0-9a-f]{32}$/.test(nonce)) throw new SandboxFault('invalid', `${found.name} has no nonce of ours`);
  return nonce;
}

/** Engine faults in the words of the port; errors of callers (a fact that was not durable) pass as they are. */
function sandboxFault(error: unknown): unknown {
  if (EngineFault.is(error)) return new SandboxFault('engine', error.message, { cause: error });
  return faultOf(error);
}

/** For what speaks in EscrowErrors: EngineFaults become EngineUnavailable. */
export async function coded<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (!EngineFault.is(error)) throw error;
    throw new EscrowError(
      'EngineUnavailable',
      error.message,
      error.kind === 'permission'
        ? 'Let your user use the container engine, then try again.'
        : 'Start Docker or Podman, then try again; escrow doctor says more.',
      { kind: error.kind },
    );
  }
}
