import * as z from 'zod';
import type { ToolCall } from '../inference/port.ts';

/** A call that is declared and valid: what may be done. */
export type AgentCall =
  | { readonly tool: 'terminal'; readonly command: string }
  | {
      readonly tool: 'file_editor';
      readonly command: 'view';
      readonly path: string;
      readonly range: readonly [number, number] | null;
    }
  | { readonly tool: 'file_editor'; readonly command: 'create'; readonly path: string; readonly fileText: string }
  | {
      readonly tool: 'file_editor';
      readonly command: 'str_replace';
      readonly path: string;
      readonly oldText: string;
      readonly newText: string;
    }
  | {
      readonly tool: 'file_editor';
      readonly command: 'insert';
      readonly path: string;
      readonly line: number;
      readonly newText: string;
    }
  | { readonly tool: 'file_editor'; readonly command: 'undo_edit'; readonly path: string }
  /** `path` null: all files of the task. */
  | { readonly tool: 'search'; readonly query: string; readonly path: string | null }
  | { readonly tool: 'finish'; readonly message: string }
  | { readonly tool: 'think'; readonly thought: string };

/** A call that does something in the sandbox. */
export type WorkCall = Exclude<AgentCall, { tool: 'finish' | 'think' }>;

export type ReadCall =
  | { readonly ok: true; readonly call: AgentCall }
  /** `denied` is a request for something that is not permitted; `code` names it. `text` is the answer for the model. */
  | { readonly ok: false; readonly code: string; readonly denied: boolean; readonly text: string };

const aliases: ReadonlyMap<string, AgentCall['tool']> = new Map<string, AgentCall['tool']>([
  ['terminal', 'terminal'],
  ['bash', 'terminal'],
  ['execute_bash', 'terminal'],
  ['shell', 'terminal'],
  ['run_command', 'terminal'],
  ['file_editor', 'file_editor'],
  ['str_replace_editor', 'file_editor'],
  ['str_replace_based_edit_tool', 'file_editor'],
  ['search', 'search'],
  ['grep', 'search'],
  ['search_files', 'search'],
  ['search_text', 'search'],
  ['finish', 'finish'],
  ['think', 'think'],
]);

/** The declared tool that a name stands for; markers of other formats are stripped. Null where there is none. */
export function toolNamed(raw: string): AgentCall['tool'] | null {
  const name = raw
    .replaceAll(/<\|[^|>]*\|>.*$/gs, '')
    .replaceAll(/<\/?[A-Za-z_][^>]*>?/g, '')
    .replace(/^\s*(functions?|tools?)[.:]/, '')
    .trim()
    .toLowerCase();
  return aliases.get(name) ?? null;
}

const text = z.string();
const whole = z.number().int();
const maybe = <T extends z.ZodType>(schema: T) => schema.nullish();

/** `summary` and `security_risk` are arguments that this family of tools has elsewhere; they carry nothing here. */
const noise = { summary: z.unknown().optional(), security_risk: z.unknown().optional() };

const Terminal = z.strictObject({
  command: text,
  is_input: maybe(z.boolean()),
  reset: maybe(z.boolean()),
  timeout: maybe(z.number()),
  ...noise,
});
const Editor = z.strictObject({
  command: z.enum(['view', 'create', 'str_replace', 'insert', 'undo_edit']),
  path: text,
  file_text: maybe(text),
  old_str: maybe(text),
  new_str: maybe(text),
  insert_line: maybe(whole),
  view_range: maybe(z.array(whole)),
  ...noise,
});
const Search = z.strictObject({ query: text, path: maybe(text), ...noise });
const Finish = z.strictObject({ message: maybe(text), ...noise });
const Think = z.strictObject({ thought: text, ...noise });

/**
 * Reads a call tolerantly: known aliases, arguments given as a JSON string, arrays and numbers given as strings, a missing
 * editor command that only one can be meant by. What is not valid after that is answered, never executed. `offered`: names
 * of the tools that the model was offered; another one that there is elsewhere is denied, however it is called. Pure.
 */
export function readCall(call: ToolCall, offered: readonly string[]): ReadCall {
  const tool = toolNamed(call.name);
  const bad = (code: string, message: string, denied = false): ReadCall => ({ ok: false, code, denied, text: message });
  const tools = `Tools: ${offered.join(', ')}.`;
  if (tool === null) return bad('undeclared_tool', `There is no tool "${call.name.slice(0, 60)}". ${tools}`);
  if (!offered.includes(tool)) return bad('tool_not_allowed', `Denied: this task has no ${tool}. ${tools}`, true);
  const args = readArguments(call.arguments);
  if (args === null) return bad('arguments_not_an_object', `The arguments of ${tool} must be one JSON object.`);

  switch (tool) {
    case 'terminal': {
      const parsed = Terminal.safeParse(args);
      if (!parsed.success) return bad('arguments_invalid', complaint(tool, parsed.error, 'command (text)'));
      if (parsed.data.is_input === true)
        return bad('is_input', 'Denied: is_input. No program here waits for input; run a listed check.', true);
      if (parsed.data.reset === true)
        return bad('reset', 'Denied: reset. There is no shell to reset; each check starts anew.', true);
      return { ok: true, call: { tool, command: parsed.data.command } };
    }
    case 'file_editor':
      return readEditorCall(args);
    case 'search': {
      const parsed = Search.safeParse(withQuery(args));
      if (!parsed.success)
        return bad('arguments_invalid', complaint(tool, parsed.error, 'query (text) and path (a file or folder)'));
      // A line end after the text is how it was printed, not part of it.
      const query = parsed.data.query.replace(/\r?\n$/, '');
      return { ok: true, call: { tool, query, path: parsed.data.path ?? null } };
    }
    case 'finish': {
      const parsed = Finish.safeParse(args);
      if (!parsed.success) return bad('arguments_invalid', complaint(tool, parsed.error, 'message (text)'));
      return { ok: true, call: { tool, message: parsed.data.message ?? '' } };
    }
    case 'think': {
      const parsed = Think.safeParse(args);
      if (!parsed.success) return bad('arguments_invalid', complaint(tool, parsed.error, 'thought (text)'));
      return { ok: true, call: { tool, thought: parsed.data.thought } };
    }
    default:
      throw new Error('unreachable tool');
  }
}

function readEditorCall(given: Readonly<Record<string, unknown>>): ReadCall {
  const args: Record<string, unknown> = { ...given };
  const bad = (message: string): ReadCall => ({ ok: false, code: 'arguments_invalid', denied: false, text: message });
  if (typeof args['view_range'] === 'string') args['view_range'] = decoded(args['view_range']) ?? args['view_range'];
  if (typeof args['insert_line'] === 'string' && /^\s*\d+\s*$/.test(args['insert_line']))
    args['insert_line'] = Number(args['insert_line']);
  args['command'] ??= inferredCommand(args);
  if (args['command'] === undefined) delete args['command'];
  const parsed = Editor.safeParse(args);
  if (!parsed.success)
    return bad(
      complaint(
        'file_editor',
        parsed.error,
        'command, path, and file_text, old_str, new_str, insert_line or view_range',
      ),
    );
  const {
    command,
    path,
    file_text: fileText,
    old_str: oldText,
    new_str: newText,
    insert_line: line,
    view_range: range,
  } = parsed.data;
  switch (command) {
    case 'view': {
      if (range === null || range === undefined || range.length === 0)
        return { ok: true, call: { tool: 'file_editor', command, path, range: null } };
      const [first, last] = range;
      if (range.length !== 2 || first === undefined || last === undefined)
        return bad('view_range is two line numbers: [first, last].');
      return { ok: true, call: { tool: 'file_editor', command, path, range: [first, last] } };
    }
    case 'create':
      if (typeof fileText !== 'string') return bad('create needs file_text, the whole text of the file.');
      return { ok: true, call: { tool: 'file_editor', command, path, fileText } };
    case 'str_replace':
      if (typeof oldText !== 'string') return bad('str_replace needs old_str, the text to replace.');
      if (typeof newText !== 'string') return bad('str_replace needs new_str (an empty text deletes).');
      return { ok: true, call: { tool: 'file_editor', command, path, oldText, newText } };
    case 'insert':
      if (typeof line !== 'number')
        return bad('insert needs insert_line, the line after which to insert (0: at the top).');
      if (typeof newText !== 'string') return bad('insert needs new_str, the lines to insert.');
      return { ok: true, call: { tool: 'file_editor', command, path, line, newText } };
    case 'undo_edit':
      return { ok: true, call: { tool: 'file_editor', command, path } };
    default:
      throw new Error('unreachable command');
  }
}

/** The one command that the arguments can mean, or undefined. */
function inferredCommand(args: Readonly<Record<string, unknown>>): string | undefined {
  const has = (name: string): boolean => args[name] !== undefined && args[name] !== null;
  const meant = [
    has('file_text') ? 'create' : null,
    has('old_str') ? 'str_replace' : null,
    has('insert_line') ? 'insert' : null,
    has('view_range') ? 'view' : null,
  ].filter((command) => command !== null);
  if (meant.length > 1) return undefined;
  return meant[0] ?? (has('path') && !has('new_str') ? 'view' : undefined);
}

/** Names that the text has in search tools elsewhere. One of them counts, and only where `query` is not there. */
const queryNames = ['pattern', 'text', 'search_term'] as const;

function withQuery(args: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>> {
  const name = queryNames.find((each) => Object.hasOwn(args, each));
  if (name === undefined || Object.hasOwn(args, 'query')) return args;
  const { [name]: query, ...rest } = args;
  return { ...rest, query };
}

function readArguments(value: unknown): Readonly<Record<string, unknown>> | null {
  if (value === null || value === undefined) return {};
  const object = typeof value === 'string' ? decoded(value) : value;
  if (typeof object !== 'object' || object === null || Array.isArray(object)) return null;
  return object as Readonly<Record<string, unknown>>;
}

/** JSON in a string; raw newlines and tabs inside its strings, which models print, are taken as escaped. */
function decoded(value: string): unknown {
  try {
    return JSON.parse(value) as unknown;
  } catch {
    try {
      return JSON.parse(escapeControls(value)) as unknown;
    } catch {
      return undefined;
    }
  }
}

function escapeControls(value: string): string {
  let out = '';
  let inString = false;
  for (let i = 0; i < value.length; i += 1) {
    const c = value.charAt(i);
    if (c === '\\' && inString) {
      out += c + value.charAt(i + 1);
      i += 1;
      continue;
    }
    if (c === '"') inString = !inString;
    out += inString && value.charCodeAt(i) < 0x20 ? `\\u${value.charCodeAt(i).toString(16).padStart(4, '0')}` : c;
  }
  return out;
}

function complaint(tool: string, error: z.ZodError, wanted: string): string {
  const issue = error.issues[0];
  const where = issue === undefined || issue.path.length === 0 ? '' : ` (${issue.path.map(String).join('.')})`;
  return `The arguments of ${tool} are not valid: ${(issue?.message ?? 'unknown').slice(0, 200)}${where}. It takes ${wanted}.`;
}

/**
 * Texts between marks, one after the other; `open`: the last one may end with the whole. Plain searches, as the text is
 * an engine's: a pattern would start anew at each mark and take time by the square of their number.
 */
function piecesBetween(content: string, before: string, after: string, open: boolean): readonly string[] {
  const pieces: string[] = [];
  for (let at = content.indexOf(before); at !== -1;) {
    const from = at + before.length;
    const found = content.indexOf(after, from);
    if (found === -1 && !open) break;
    const end = found === -1 ? content.length : found;
    pieces.push(content.slice(from, end));
    // The mark that ends one may begin the next: a stray fence must not put the rest out of step.
    at = content.indexOf(before, end);
  }
  return pieces;
}

/**
 * Calls that a model printed as text instead of making them: tagged or fenced JSON with the name of a tool that was
 * offered, or the whole answer as such JSON. At most eight; empty where the text only talks about tools.
 */
export function callsInText(content: string, offered: readonly string[]): readonly ToolCall[] {
  const candidates = [
    ...piecesBetween(content, '<tool_call>', '</tool_call>', true),
    ...piecesBetween(content, '```', '```', false).map((piece) => piece.replace(/^(?:json|tool_call)/, '')),
    ...['<|python_tag|>', '<|tool_call|>'].flatMap((mark) => {
      const at = content.indexOf(mark);
      const end = content.lastIndexOf('}');
      return at === -1 || end < at ? [] : [content.slice(at + mark.length, end + 1)];
    }),
  ]
    .map((piece) => piece.trim())
    .filter((piece) => piece.startsWith('{') && piece.endsWith('}'));
  if (candidates.length === 0 && /^\s*\{.*\}\s*$/s.test(content)) candidates.push(content);
  const calls: ToolCall[] = [];
  for (const candidate of candidates.slice(0, 8)) {
    const value = decoded(candidate);
    if (typeof value !== 'object' || value === null) continue;
    const held = value as { readonly name?: unknown; readonly arguments?: unknown; readonly parameters?: unknown };
    if (typeof held.name !== 'string' || !offered.includes(toolNamed(held.name) ?? '')) continue;
    calls.push({ id: null, name: held.name, arguments: held.arguments ?? held.parameters ?? null });
  }
  return calls;
}
