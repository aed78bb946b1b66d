import { EscrowError } from '../../protocol/errors.ts';
import type { Sha256 } from '../../protocol/primitives.ts';
import type { Binding, LoopSwitches } from '../../protocol/binding.ts';
import { InferenceOptions } from '../../protocol/binding.ts';
import type { InferenceEngine } from './port.ts';

/** Everything a binding is made of that is not the engine's to say. */
export interface BindingParts {
  readonly engine: InferenceEngine;
  /** As the person named it. */
  readonly model: string;
  readonly defaults: InferenceOptions;
  /** What the person or the contract asked for; `numPredict` is the contract's output budget. */
  readonly asked: { readonly [K in keyof InferenceOptions]?: InferenceOptions[K] | undefined };
  readonly switches: LoopSwitches;
  readonly promptDigest: Sha256;
  readonly image: {
    readonly reference: string;
    readonly digest: string;
    readonly executorDigest: Sha256;
    /** Digest of the preparation record; null: set-up made it. */
    readonly record?: Sha256 | null;
  };
  readonly profile: { readonly name: string; readonly digest: Sha256 };
}

/**
 * Assembles the exact identity of who works and where. Throws EscrowError: what `InferenceEngine.identity` throws,
 * InferenceUnavailable, and InvalidParams for options that the model cannot have (a context above its own; no tools).
 */
export async function makeBinding(parts: BindingParts): Promise<Binding> {
  const { engine } = parts;
  const health = await engine.health();
  const model = await engine.identity(parts.model);
  if (health.version === null)
    throw new EscrowError(
      'InferenceUnavailable',
      `The inference engine at ${engine.host} does not answer.`,
      health.next,
      {
        host: engine.host,
      },
    );
  if (model.capabilities.length > 0 && !model.capabilities.includes('tools'))
    throw new EscrowError(
      'InvalidParams',
      `"${model.tag}" cannot call tools, which an attempt needs.`,
      'Choose a model that lists the capability "tools".',
      { tag: model.tag, capabilities: model.capabilities },
    );
  const asked = Object.fromEntries(Object.entries(parts.asked).filter(([, value]) => value !== undefined));
  const wanted = { ...parts.defaults, ...asked };
  const most = model.contextAdvertised;
  // A default is fitted to the model; what was asked for is never changed silently.
  if (most !== null && parts.asked.numCtx === undefined) wanted.numCtx = Math.min(wanted.numCtx, most);
  const parsed = InferenceOptions.safeParse(wanted);
  if (!parsed.success)
    throw new EscrowError('InvalidParams', 'The inference options are not valid.', 'Correct the named options.', {
      issues: parsed.error.issues.map((issue) => `${issue.path.join('.')}: ${issue.message}`),
    });
  const options = parsed.data;
  if (most !== null && options.numCtx > most)
    throw new EscrowError(
      'InvalidParams',
      `"${model.tag}" has a context of ${most} tokens, less than the ${options.numCtx} asked for.`,
      `Ask for at most ${most}.`,
      { numCtx: options.numCtx, contextAdvertised: most },
    );
  if (engine.kind === 'chat-completions' && options.draftNumPredict > 0)
    throw new EscrowError(
      'InvalidParams',
      'This server takes no draftNumPredict: speculative drafts are set when it is started.',
      'Leave draftNumPredict out.',
      { draftNumPredict: options.draftNumPredict },
    );
  if (options.numPredict >= options.numCtx)
    throw new EscrowError(
      'InvalidParams',
      `The output budget (${options.numPredict} tokens) leaves no room in a context of ${options.numCtx}.`,
      'Lower the contract’s outputTokensPerRequest or raise numCtx.',
      { numPredict: options.numPredict, numCtx: options.numCtx },
    );
  return {
    engine: { kind: engine.kind, version: health.version, host: engine.host },
    model,
    options,
    switches: parts.switches,
    promptDigest: parts.promptDigest,
    image: {
      reference: parts.image.reference,
      digest: parts.image.digest,
      ...(parts.image.record === undefined ? {} : { record: parts.image.record }),
    },
    executorDigest: parts.image.executorDigest,
    profile: { name: parts.profile.name, digest: parts.profile.digest },
    synthetic: engine.synthetic,
    qualification: engine.synthetic ? 'synthetic' : 'none',
  };
}
