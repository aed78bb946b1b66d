import { text, type Command, type Invocation } from '../command.ts';
import { exitCodes, UsageError } from '../exit-code.ts';
import { gibibytes, short, time } from '../format.ts';
import { styled, table, type Part } from '../output.ts';
import type { ModelView } from '../../protocol/status.ts';

const reviewerOption = {
  reviewer: { type: 'string', value: 'NAME', help: 'Who decides. Recorded as asserted.' },
} as const;

function reviewer(invocation: Invocation): { readonly name: string; readonly channel: 'tty' | 'script' } {
  const name = text(invocation, 'reviewer');
  if (name === undefined) throw new UsageError('--reviewer is missing: this is a decision, and needs a name');
  return { name, channel: invocation.out.interactive ? 'tty' : 'script' };
}

/** What a model can do here, in words: the reason where it is refused, else tools, context and room. */
function fitWords(model: ModelView): string {
  switch (model.fit?.state) {
    case 'fits_gpu':
      return 'fits the GPU';
    case 'fits_host':
      return model.fit.gpuFree === null ? 'fits this machine' : 'fits, partly on the CPU';
    case 'too_large':
      return 'larger than what is free';
    default:
      return '-';
  }
}

const refusals: Readonly<Record<string, string>> = {
  cloud: 'its prompts would leave this machine',
  no_tools: 'it cannot call tools',
};

const models: Command = {
  path: ['models'],
  summary: 'List the models and rehearsal scripts, and what each can do on this machine.',
  args: '',
  options: {},
  details: [
    'A model that Escrow refuses is listed with the reason. FITS compares the size of the weights with the memory that is free now; the cache for the context comes on top and no engine tells it beforehand.',
    'WITNESS says who vouches for the digest: the engine alone, or this host as well, which read and hashed the file. No model has passed a qualification yet: that gate does not exist.',
  ],
  exits: {},
  async run({ out, kernel }) {
    const { models: all, silent } = await (await kernel.connect()).call('kernel/models', {});
    const rows = all.map((model) => [
      model.engine,
      model.tag,
      [model.parameterSize, model.quantisation].filter((part) => part !== null).join(' ') || '-',
      model.sizeBytes === null || model.engine === 'rehearsal' ? '-' : gibibytes(model.sizeBytes),
      model.contextAdvertised === null ? '-' : String(model.contextAdvertised),
      model.capabilities.length === 0 ? 'not told' : model.capabilities.includes('tools') ? 'yes' : 'no',
      model.engine === 'rehearsal' ? '-' : `${fitWords(model)}${model.loaded ? ', loaded' : ''}`,
      model.digest === null ? 'not told' : short(model.digest),
      model.refused === null
        ? model.engine === 'rehearsal'
          ? `synthetic · ${model.description}`
          : `qualification: none${model.unproven.length === 0 ? '' : ` · unproven: ${model.unproven.join(', ')}`}`
        : `refused: ${refusals[model.refused] ?? model.refused}`,
    ]);
    if (rows.length === 0) out.line('No models.');
    else
      for (const line of table([
        ['ENGINE', 'MODEL', 'SIZE', 'WEIGHTS', 'CONTEXT', 'TOOLS', 'FITS', 'DIGEST', ''],
        ...rows,
      ]))
        out.line(line);
    for (const engine of silent) {
      out.line(styled('yellow', `${engine.engine} at ${engine.host} was not asked: ${engine.code}`));
      out.line(styled('dim', '→ '), engine.next);
    }
    out.value({ models: all, silent });
    return exitCodes.ok;
  },
};

const list: Command = {
  path: ['engine', 'list'],
  summary: 'List the servers that were approved as engine for chat completions.',
  args: '',
  options: {},
  details: ['One approval stands at a time; earlier ones stay on record as revoked.'],
  exits: {},
  async run({ out, kernel }) {
    const { approvals } = await (await kernel.connect()).call('engine/list', {});
    if (approvals.length === 0) out.line('No server has been approved.');
    for (const a of approvals) {
      const state: Part = a.revoked ? styled('yellow', 'revoked') : styled('green', 'approved');
      out.line(
        state,
        ` ${a.host} · ${a.version ?? 'version not told'} · by ${a.reviewer} (as asserted, by ${a.channel})`,
      );
      out.line(styled('dim', `  ${time(a.at)}`));
    }
    out.value({ approvals });
    return exitCodes.ok;
  },
};

const approve: Command = {
  path: ['engine', 'approve'],
  summary: 'Let sessions send prompts to a server for chat completions on this machine.',
  args: 'HOST',
  options: reviewerOption,
  details: [
    'HOST is a loopback address such as http://127.0.0.1:8080, where llama.cpp or another server speaks /v1/chat/completions. The server is asked who it is; your decision is recorded, and replaces an earlier one.',
    'Then: escrow session start FILE --engine chat-completions --model ID. What such a server cannot prove is named as unproven in the binding and in each receipt.',
  ],
  exits: { 5: 'the server does not answer, or is not on this machine' },
  async run(invocation) {
    const { out, kernel, args } = invocation;
    const by = reviewer(invocation);
    const approval = await (await kernel.connect()).call('engine/approve', { host: args[0] ?? '', reviewer: by });
    out.line(`${approval.host} is approved (${approval.version ?? 'version not told'}).`);
    out.value(approval);
    return exitCodes.ok;
  },
};

const revoke: Command = {
  path: ['engine', 'revoke'],
  summary: 'Take an approval back. Sessions bound to that server start no further attempt.',
  args: 'HOST',
  options: reviewerOption,
  details: [],
  exits: {},
  async run(invocation) {
    const { out, kernel, args } = invocation;
    const by = reviewer(invocation);
    await (await kernel.connect()).call('engine/revoke', { host: args[0] ?? '', reviewer: by });
    out.line('It is not approved any more.');
    out.value({ revoked: true });
    return exitCodes.ok;
  },
};

export const engineCommands: readonly Command[] = [models, list, approve, revoke];
