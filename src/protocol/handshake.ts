import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import type { Socket } from 'node:net';
import * as z from 'zod';
import { ProtocolRange } from './endpoint.ts';
import { EscrowError, errorCodes, type ErrorCode } from './errors.ts';
import { canonicalJson } from './hash.ts';
import { ClientHello } from './methods.ts';
import { ClientId } from './primitives.ts';
import { ConnectionLost, readLine, writeLine } from './socket-lines.ts';

/**
 * The phase before JSON-RPC: four lines of JSON on the raw socket.
 *
 *     client  {nonce, protocol: {min, max}, hello, intent}
 *     Kernel  {nonce, proof, protocol, instanceId, epoch, version}   or  {refused, message, next}
 *     client  {proof}
 *     Kernel  {ok: true, …}                                          or  {refused, message, next}
 *
 * A proof is HMAC-SHA256, keyed with the endpoint's token, over the prover's role and everything both sides said
 * before it; the token itself never travels. The shape of these lines is older than any protocol version and may only
 * grow members, so that two builds of any age can at least agree on who goes.
 */

/** Milliseconds the whole handshake may take. */
export const handshakeMs = 5000;

const Nonce = z.string().regex(/^[0-9a-f]{64}$/);
const Proof = z.string().regex(/^[0-9a-f]{64}$/);

/** Unknown members of a newer client's hello are dropped, not refused. */
const Hello = z.object({ ...ClientHello.shape, clientId: ClientId });
/** What a client says of itself, checked. */
export type ProvenHello = z.infer<typeof Hello>;

const Opening = z.object({
  nonce: Nonce,
  protocol: ProtocolRange,
  hello: Hello,
  /** `drain-if-idle`: a newer client asks an older Kernel to go when nothing depends on it; the connection then ends. */
  intent: z.enum(['connect', 'drain-if-idle']).default('connect'),
});

const Welcome = z.object({
  /** The negotiated version; null when the ranges do not meet (then only `drain-if-idle` goes on). */
  protocol: z.number().int().nullable(),
  instanceId: z.string().max(64),
  epoch: z.number().int().nonnegative(),
  version: z.string().max(40),
});
/** What the Kernel says of itself, proven. */
export type Welcome = z.infer<typeof Welcome>;

const ServerOpening = Welcome.extend({ nonce: Nonce, proof: Proof });
const Refusal = z.object({ refused: z.string().max(60), message: z.string().max(500), next: z.string().max(500) });
const ClientProof = z.object({ proof: Proof });
const Acceptance = z.object({ ok: z.literal(true), draining: z.boolean().optional() });

type Role = 'kernel' | 'client';

function prove(token: string, role: Role, opening: unknown, answer: Readonly<Record<string, unknown>>): Buffer {
  const { proof: _, ...said } = answer;
  return createHmac('sha256', Buffer.from(token, 'hex'))
    .update(canonicalJson(['escrow-handshake-1', role, opening, said]))
    .digest();
}

function proves(given: string, expected: Buffer): boolean {
  const bytes = Buffer.from(given, 'hex');
  return bytes.length === expected.length && timingSafeEqual(bytes, expected);
}

/** The highest version in both ranges, or null. */
export function negotiate(a: ProtocolRange, b: ProtocolRange): number | null {
  const highest = Math.min(a.max, b.max);
  return highest >= Math.max(a.min, b.min) ? highest : null;
}

function parseLine(line: string): Record<string, unknown> {
  const value: unknown = JSON.parse(line);
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw new Error('not a JSON object');
  return value as Record<string, unknown>;
}

const refusedBy = (refusal: z.infer<typeof Refusal>): EscrowError =>
  new EscrowError(
    Object.hasOwn(errorCodes, refusal.refused) ? (refusal.refused as ErrorCode) : 'HandshakeRefused',
    refusal.message,
    refusal.next,
    { refused: refusal.refused },
  );

const broken = (reason: string): EscrowError =>
  new EscrowError(
    'HandshakeRefused',
    `The handshake with the Kernel failed: ${reason}.`,
    'Reload the window; if it stays, stop the Kernel with `escrow kernel stop` and look at its log.',
    { reason },
  );

async function receive<T extends z.ZodType>(
  socket: Socket,
  schema: T,
  signal: AbortSignal,
): Promise<{ readonly raw: Record<string, unknown>; readonly value: z.output<T> }> {
  const raw = parseLine(await readLine(socket, signal));
  const refusal = Refusal.safeParse(raw);
  if (refusal.success) throw refusedBy(refusal.data);
  const parsed = schema.safeParse(raw);
  if (!parsed.success) throw new Error(z.prettifyError(parsed.error));
  return { raw, value: parsed.data };
}

export interface ClientHandshake {
  readonly token: string;
  readonly protocol: ProtocolRange;
  readonly hello: ClientHello;
  readonly intent?: 'connect' | 'drain-if-idle';
  readonly timeoutMs?: number;
  /** Gives up earlier. */
  readonly signal?: AbortSignal | undefined;
}

/**
 * The client's side. Resolves when both sides have proven that they know the token; the socket then speaks LSP framing
 * (`connect`), or ends (`drain-if-idle`; `draining` says whether the Kernel goes). Throws EscrowError HandshakeRefused,
 * VersionMismatch, KernelDraining, or what else the Kernel refused with, and ConnectionLost when the socket failed; the
 * caller destroys the socket then.
 */
export async function greetKernel(
  socket: Socket,
  options: ClientHandshake,
): Promise<{ readonly welcome: Welcome; readonly draining: boolean }> {
  const timeout = AbortSignal.timeout(options.timeoutMs ?? handshakeMs);
  const signal = options.signal === undefined ? timeout : AbortSignal.any([timeout, options.signal]);
  const intent = options.intent ?? 'connect';
  const opening = {
    nonce: randomBytes(32).toString('hex'),
    protocol: { min: options.protocol.min, max: options.protocol.max },
    hello: options.hello,
    intent,
  };
  try {
    writeLine(socket, opening);
    const { raw, value } = await receive(socket, ServerOpening, signal);
    if (!proves(value.proof, prove(options.token, 'kernel', opening, raw))) {
      throw broken('the Kernel could not prove that it knows the token');
    }
    if (value.protocol === null && intent === 'connect') {
      throw new EscrowError(
        'VersionMismatch',
        `The running Kernel (${value.version}) and this client have no protocol version in common.`,
        'Close the other windows so that the Kernel can be replaced, or update the older side.',
        { kernelVersion: value.version },
      );
    }
    writeLine(socket, { proof: prove(options.token, 'client', opening, raw).toString('hex') });
    const accepted = await receive(socket, Acceptance, signal);
    const { protocol, instanceId, epoch, version } = value;
    return { welcome: { protocol, instanceId, epoch, version }, draining: accepted.value.draining ?? false };
  } catch (error) {
    if (EscrowError.is(error) || error instanceof ConnectionLost) throw error;
    throw broken(error instanceof Error ? error.message : String(error));
  }
}

export interface KernelHandshake {
  readonly token: string;
  readonly protocol: ProtocolRange;
  readonly instanceId: string;
  readonly epoch: number;
  readonly version: string;
  /** Refuses everybody with this error, e.g. while draining; asked when a client has proven itself. */
  readonly refusal: () => EscrowError | undefined;
  /** Whether the Kernel goes for a newer client. */
  readonly drainIfIdle: (clientVersion: string) => boolean;
  readonly timeoutMs?: number;
}

/**
 * The Kernel's side. Undefined when the socket was a stranger, was refused or asked only for a drain: it has been
 * ended. Never throws.
 */
export async function greetClient(
  socket: Socket,
  options: KernelHandshake,
): Promise<{ readonly hello: ProvenHello; readonly protocol: number } | undefined> {
  const signal = AbortSignal.timeout(options.timeoutMs ?? handshakeMs);
  const refuse = (error: EscrowError): undefined => {
    socket.end(`${JSON.stringify({ refused: error.code, message: error.message, next: error.next })}\n`);
    socket.resume();
    return undefined;
  };
  try {
    const opening = await receive(socket, Opening, signal);
    const { hello, intent } = opening.value;
    const protocol = negotiate(opening.value.protocol, options.protocol);
    const answer = {
      nonce: randomBytes(32).toString('hex'),
      protocol,
      instanceId: options.instanceId,
      epoch: options.epoch,
      version: options.version,
    };
    const proof = prove(options.token, 'kernel', opening.raw, answer).toString('hex');
    writeLine(socket, { ...answer, proof });
    const proven = await receive(socket, ClientProof, signal);
    if (!proves(proven.value.proof, prove(options.token, 'client', opening.raw, answer))) {
      return refuse(broken('the client could not prove that it knows the token'));
    }
    if (intent === 'drain-if-idle') {
      socket.end(`${JSON.stringify({ ok: true, draining: options.drainIfIdle(hello.version) })}\n`);
      socket.resume();
      return undefined;
    }
    const refusal = options.refusal();
    if (refusal !== undefined) return refuse(refusal);
    if (protocol === null) {
      return refuse(
        new EscrowError('VersionMismatch', 'There is no protocol version in common.', 'Update the older side.'),
      );
    }
    writeLine(socket, { ok: true });
    return { hello, protocol };
  } catch (error) {
    if (!socket.destroyed) {
      refuse(EscrowError.is(error) ? error : broken(error instanceof Error ? error.message.slice(0, 300) : 'garbage'));
    }
    return undefined;
  }
}
