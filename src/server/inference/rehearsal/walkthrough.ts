import type { Turn } from './script.ts';

/** What the scripted walk needs of a request, as the server read it from the wire. */
export interface WireMessage {
  readonly role: string;
  readonly content: string;
}

/**
 * The built-in script that works on any contract: it looks at the first file the task names, runs the first listed
 * check, and finishes without a change. It shows how a session goes; it solves nothing.
 */
export function walkthroughTurn(index: number, messages: readonly WireMessage[]): Turn {
  const task = messages.find((m) => m.role === 'user')?.content ?? '';
  const file = /^- (\/workspace\/\S.*?)(?: \(new\))?$/m.exec(task)?.[1];
  const command = /^- `(.+)`$/m.exec(task)?.[1];
  const steps: Turn[] = [];
  if (file !== undefined)
    steps.push({
      thinking: 'A rehearsal: first a look at the file.',
      toolCalls: [{ name: 'file_editor', arguments: { command: 'view', path: file } }],
    });
  if (command !== undefined)
    steps.push({
      thinking: 'Next the first check, to see what it says.',
      toolCalls: [{ name: 'terminal', arguments: { command } }],
    });
  return steps[index] ?? finishTurn('Rehearsal walk-through: looked at a file, ran a check, changed nothing.');
}

/** What every script ends with. */
export function finishTurn(message: string): Turn {
  return { toolCalls: [{ name: 'finish', arguments: { message } }] };
}
