import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import * as z from 'zod';
import { sha256 } from '../../protocol/hash.ts';
import { engineAddress, type EngineAddress } from './engine-address.ts';
import { EngineFault } from './engine-fault.ts';

/** What the choice of an engine depends on; handed in, so that it can be shown without this machine's own. */
export interface EngineSurroundings {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly platform: NodeJS.Platform;
  readonly homeFolder: string;
  /** Text of a small file; undefined where it can't be read. */
  readonly read: (path: string) => string | undefined;
  readonly exists: (path: string) => boolean;
}

export function surroundingsHere(homeFolder: string): EngineSurroundings {
  return {
    env: process.env,
    platform: process.platform,
    homeFolder,
    read: (path) => {
      try {
        return readFileSync(path, 'utf8');
      } catch {
        return undefined;
      }
    },
    exists: existsSync,
  };
}

/** Of Docker's own files, what names an engine. Everything else in them is left alone. */
const DockerConfig = z.looseObject({ currentContext: z.string().optional() });
const DockerContext = z.looseObject({
  Endpoints: z.looseObject({ docker: z.looseObject({ Host: z.string().optional() }).optional() }).optional(),
});

export interface EngineChoice {
  readonly address: EngineAddress;
  /** Who named it, in words for a person; null: nobody did, it is what listens here or where Docker usually would. */
  readonly namedBy: string | null;
}

/**
 * Which engine is used: what a machine setting names, else DOCKER_HOST, else the user's docker context, else what
 * listens on this machine (Docker's socket, then Podman's of the user and of root). Another machine's engine only when
 * the setting names it. Throws EngineFault `unsupported`, with where the address came from.
 */
export function engineChoice(setting: string | null, around: EngineSurroundings): EngineChoice {
  const { env, platform } = around;
  if (setting !== null) return { address: engineAddress(setting, undefined, platform), namedBy: 'the machine setting' };
  const named = nonEmpty(env['DOCKER_HOST']);
  if (named !== undefined) return { address: engineAddress(null, named, platform), namedBy: 'DOCKER_HOST' };
  const context = dockerContext(around);
  if (context !== undefined) {
    try {
      return { address: engineAddress(null, context.host, platform), namedBy: `docker context ${context.name}` };
    } catch (error) {
      if (!EngineFault.is(error)) throw error;
      throw new EngineFault('unsupported', `docker context ${context.name}: ${error.message}`, null, { cause: error });
    }
  }
  const usual = engineAddress(null, undefined, platform);
  if (platform === 'win32' || (usual.kind === 'socket' && around.exists(usual.path)))
    return { address: usual, namedBy: null };
  const runtimeDir = nonEmpty(env['XDG_RUNTIME_DIR']);
  const others = [
    ...(runtimeDir === undefined ? [] : [join(runtimeDir, 'docker.sock'), join(runtimeDir, 'podman', 'podman.sock')]),
    join(around.homeFolder, '.docker', 'run', 'docker.sock'),
    '/run/podman/podman.sock',
  ];
  const there = others.find((path) => around.exists(path));
  return { address: there === undefined ? usual : { kind: 'socket', path: there }, namedBy: null };
}

/** The address of that choice. Throws EngineFault `unsupported`. */
export function chooseEngine(setting: string | null, around: EngineSurroundings): EngineAddress {
  return engineChoice(setting, around).address;
}

/** The context that the docker command line would use; undefined for its default one. */
function dockerContext(around: EngineSurroundings): { readonly name: string; readonly host: string } | undefined {
  const folder = nonEmpty(around.env['DOCKER_CONFIG']) ?? join(around.homeFolder, '.docker');
  const name =
    nonEmpty(around.env['DOCKER_CONTEXT']) ??
    parsed(DockerConfig, around.read(join(folder, 'config.json')))?.currentContext;
  if (name === undefined || name === '' || name === 'default') return undefined;
  const file = join(folder, 'contexts', 'meta', sha256(name), 'meta.json');
  const host = parsed(DockerContext, around.read(file))?.Endpoints?.docker?.Host;
  if (host === undefined || host === '') {
    throw new EngineFault('unsupported', `docker context ${name} names no engine (${file})`);
  }
  return { name, host };
}

function parsed<T>(schema: z.ZodType<T>, text: string | undefined): T | undefined {
  if (text === undefined) return undefined;
  try {
    const result = schema.safeParse(JSON.parse(text));
    return result.success ? result.data : undefined;
  } catch {
    return undefined;
  }
}

function nonEmpty(text: string | undefined): string | undefined {
  return text === undefined || text === '' ? undefined : text;
}
