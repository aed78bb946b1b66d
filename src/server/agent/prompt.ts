import type { FrozenContract } from '../../protocol/contract.ts';
import { digestOf } from '../../protocol/hash.ts';
import type { Sha256 } from '../../protocol/primitives.ts';
import type { ChatMessage, ChatTool } from '../inference/port.ts';
import { visibleChecks } from './policy.ts';
import { symbolList } from './scope-text.ts';
import { quoteArgv } from './tokenizer.ts';
import { shownPath, visiblePaths } from './workspace-path.ts';

/**
 * The fixed prefix: the same bytes on every request of every session, so that the engine's prefix cache works. Small on
 * purpose: each sentence is there because models did the wrong thing without it.
 */
export const systemPrompt = `You change code in /workspace with tools, one small step at a time.
1. View the files that the task names (file_editor view).
2. Run a listed check with terminal and read why it fails.
3. Edit with str_replace: old_str is copied exactly from the view, without line numbers, and occurs once in the file.
4. Run every check again. If one fails, read its message and edit again.
5. When all checks pass, call finish.
Every answer is a tool call; text alone does nothing. terminal runs only the listed checks, exactly as written, one a call, and \`cat PATH\`: no other program, cd, pipe, && or redirection. Only writable files can be changed. Nothing can be installed.`;

/** Schemas of the tools that every task has, with the keywords that the engine forwards and no others. */
export const agentTools: readonly ChatTool[] = [
  {
    name: 'terminal',
    description: 'Run one of the listed checks.',
    parameters: { type: 'object', properties: { command: { type: 'string' } }, required: ['command'] },
  },
  {
    name: 'file_editor',
    description:
      'view: show a file with line numbers, or a folder. create: write a new file (file_text). str_replace: replace old_str by new_str. insert: add new_str after line insert_line. undo_edit: take back the last edit.',
    parameters: {
      type: 'object',
      properties: {
        command: { type: 'string', enum: ['view', 'create', 'str_replace', 'insert', 'undo_edit'] },
        path: { type: 'string', description: 'Absolute path' },
        file_text: { type: 'string' },
        old_str: { type: 'string' },
        new_str: { type: 'string' },
        insert_line: { type: 'integer' },
        view_range: { type: 'array', items: { type: 'integer' }, description: '[first, last], -1: end' },
      },
      required: ['command', 'path'],
    },
  },
  {
    name: 'finish',
    description: 'End the task, when all checks pass.',
    parameters: { type: 'object', properties: { message: { type: 'string' } }, required: ['message'] },
  },
  {
    name: 'think',
    description: 'Note a thought.',
    parameters: { type: 'object', properties: { thought: { type: 'string' } }, required: ['thought'] },
  },
];

const searchTool: ChatTool = {
  name: 'search',
  description: 'Find literal text in files; path: a file or folder.',
  parameters: {
    type: 'object',
    properties: { query: { type: 'string' }, path: { type: 'string' } },
    required: ['query'],
  },
};

/** The tools that are offered under a contract. What it adds comes last, so that the prefix before it stays the same. */
export function offeredTools(contract: FrozenContract): readonly ChatTool[] {
  return contract.tools.includes('search') ? [...agentTools, searchTool] : agentTools;
}

/** Digest of the fixed prefix, with the tools that are offered: part of the binding. */
export function promptDigest(tools: readonly ChatTool[]): Sha256 {
  return digestOf({ system: systemPrompt, tools });
}

/** Files listed by name in the task; more are found by viewing folders. */
const listedFiles = 60;

/** The first two messages of an attempt: the fixed prompt, and the task as the contract states it. */
export function firstMessages(contract: FrozenContract, feedback: string | null): readonly ChatMessage[] {
  const writable = new Set<string>(contract.writable.map((w) => w.path));
  const readable = visiblePaths(contract).filter((path) => !writable.has(path));
  const lines = [`# ${contract.title}`, contract.instruction, '', 'Writable:'];
  for (const file of contract.writable) {
    const symbols = file.symbols === null ? '' : ` (only ${symbolList(file.symbols)})`;
    lines.push(`- ${shownPath(file.path)}${file.exists ? '' : ' (new)'}${symbols}`);
  }
  if (readable.length > 0) {
    lines.push('Readable:', ...readable.slice(0, listedFiles).map((path) => `- ${shownPath(path)}`));
    if (readable.length > listedFiles) lines.push(`- … ${readable.length - listedFiles} more: view /workspace`);
  }
  lines.push('Checks:', ...visibleChecks(contract).map((check) => `- \`${quoteArgv(check.argv)}\``));
  if (feedback !== null && feedback.trim() !== '')
    lines.push(
      '',
      'A reviewer rejected an earlier attempt. You start again from the original files. The reviewer wrote:',
      feedback.trim(),
    );
  return [
    { role: 'system', content: systemPrompt },
    { role: 'user', content: lines.join('\n') },
  ];
}
