import { readFile } from 'node:fs/promises';
import path from 'node:path';
import * as z from 'zod';
import { EscrowError } from '../protocol/errors.ts';

/** Only loopback unless the machine settings file names another host (invariant 11). */
export const defaultInferenceHost = 'http://127.0.0.1:11434';

const milliseconds = z.number().int().min(0).max(86_400_000);

/** `settings.json` of the state folder: what belongs to the machine, not to a workspace. */
const SettingsFile = z.strictObject({
  /** Milliseconds without client and without work after which the Kernel ends. */
  idleExitMs: milliseconds.optional(),
  /** Container engine: a socket path or `tcp://` host; null: DOCKER_HOST, the docker context, what listens here. */
  engineHost: z.string().min(1).max(1024).nullable().optional(),
  inferenceHost: z.url({ protocol: /^https?$/ }).optional(),
  executionEnabled: z.boolean().optional(),
  /** Default for clients that do not say: milliseconds a lost connection may take to come back. */
  graceMs: milliseconds.optional(),
  /** Milliseconds without a proof of the window's renderer until settlement. */
  uiUnreachableMs: milliseconds.optional(),
  /** Sandboxes, and with them inference jobs, that may be active at once. */
  concurrentSandboxes: z.number().int().min(1).max(8).optional(),
  /** Bytes of evidence that one session may keep: design 10 allows 128 MiB; a small disk may allow less. */
  artefactAllowance: z
    .number()
    .int()
    .min(65_536)
    .max(128 * 1024 * 1024)
    .optional(),
  /** Share of this machine's memory that may be in use while a model is loaded or runs; null: not watched. */
  hostMemoryCeiling: z.number().min(0.01).max(1).nullable().optional(),
  /** The same of the memory of each GPU. Engines fill it on purpose, so it is not watched unless set. */
  gpuMemoryCeiling: z.number().min(0.01).max(1).nullable().optional(),
  /** Folder of rehearsal scripts; null: those that are shipped. */
  rehearsalDir: z.string().min(1).max(4096).nullable().optional(),
});

export interface KernelSettings {
  readonly idleExitMs: number;
  readonly engineHost: string | null;
  readonly inferenceHost: string;
  readonly executionEnabled: boolean;
  readonly graceMs: number;
  readonly uiUnreachableMs: number;
  readonly concurrentSandboxes: number;
  readonly artefactAllowance: number;
  readonly hostMemoryCeiling: number | null;
  readonly gpuMemoryCeiling: number | null;
  readonly rehearsalDir: string | null;
}

/** 10 min, 20 s and 5 min: design 10 "Window close". */
export const defaultSettings: KernelSettings = {
  idleExitMs: 600_000,
  engineHost: null,
  inferenceHost: defaultInferenceHost,
  executionEnabled: true,
  graceMs: 20_000,
  uiUnreachableMs: 300_000,
  concurrentSandboxes: 1,
  artefactAllowance: 128 * 1024 * 1024,
  hostMemoryCeiling: 0.95,
  gpuMemoryCeiling: null,
  rehearsalDir: null,
};

const invalid = (where: string, why: string): EscrowError =>
  new EscrowError('InvalidSettings', `The machine settings are not valid (${where}): ${why}`, `Correct ${where}.`, {
    where,
    why,
  });

/** Whether a URL's host is this machine. A name other than `localhost` is not: it may resolve to anything. */
export function isLoopback(url: string): boolean {
  const host = new URL(url).hostname.toLowerCase();
  return host === 'localhost' || host === '[::1]' || /^127(\.\d{1,3}){3}$/.test(host);
}

type Environment = Readonly<Record<string, string | undefined>>;

function fromEnvironment(env: Environment): Record<string, unknown> {
  const number = (name: string): number | string | undefined => {
    const text = env[name];
    return text === undefined || text === '' ? undefined : /^\d+$/.test(text) ? Number(text) : text;
  };
  const text = (name: string): string | undefined => (env[name] === '' ? undefined : env[name]);
  const enabled = text('ESCROW_EXECUTION_ENABLED');
  const found = {
    idleExitMs: number('ESCROW_IDLE_EXIT_MS'),
    engineHost: text('ESCROW_ENGINE_HOST'),
    inferenceHost: text('ESCROW_INFERENCE_HOST'),
    executionEnabled:
      enabled === undefined ? undefined : enabled === 'true' ? true : enabled === 'false' ? false : enabled,
    graceMs: number('ESCROW_GRACE_MS'),
    uiUnreachableMs: number('ESCROW_UI_UNREACHABLE_MS'),
    concurrentSandboxes: number('ESCROW_CONCURRENT_SANDBOXES'),
    artefactAllowance: number('ESCROW_ARTEFACT_ALLOWANCE'),
    rehearsalDir: text('ESCROW_REHEARSAL_DIR'),
  };
  return Object.fromEntries(Object.entries(found).filter(([, value]) => value !== undefined));
}

function parse(value: unknown, where: string): z.output<typeof SettingsFile> {
  const parsed = SettingsFile.safeParse(value);
  if (!parsed.success) {
    const issue = parsed.error.issues[0];
    throw invalid(where, `${issue?.path.join('.') ?? ''} ${issue?.message ?? ''}`.trim());
  }
  return parsed.data;
}

/**
 * Settings of the machine: defaults, then `settings.json` of the home, then `ESCROW_*` variables (tests and scripts).
 * A host for inference that is not loopback counts only from the file. Throws EscrowError InvalidSettings.
 */
export async function readSettings(home: string, env: Environment): Promise<KernelSettings> {
  const file = path.join(home, 'settings.json');
  let raw: unknown = {};
  try {
    raw = JSON.parse(await readFile(file, 'utf8'));
  } catch (error) {
    const absent = error instanceof Error && 'code' in error && error.code === 'ENOENT';
    if (!absent) throw invalid(file, error instanceof Error ? error.message : 'unreadable');
  }
  const fromFile = parse(raw, file);
  const fromEnv = parse(fromEnvironment(env), 'ESCROW_* variables');
  if (fromEnv.inferenceHost !== undefined && !isLoopback(fromEnv.inferenceHost)) {
    throw invalid('ESCROW_INFERENCE_HOST', `only ${file} may name a host that is not this machine`);
  }
  const given = Object.fromEntries(
    Object.entries({ ...fromFile, ...fromEnv }).filter(([, value]) => value !== undefined),
  );
  return { ...defaultSettings, ...given };
}
