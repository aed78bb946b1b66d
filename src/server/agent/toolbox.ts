import type { FrozenContract } from '../../protocol/contract.ts';
import type { RelPath } from '../../protocol/primitives.ts';
import { unreachable } from '../../protocol/primitives.ts';
import type { LoopSwitches } from '../../protocol/binding.ts';
import type { FileRead } from '../sandbox/port.ts';
import { SandboxFault } from '../sandbox/port.ts';
import type { ScopeFault } from '../scope/port.ts';
import type { ScopeGuard } from '../scope/scope-guard.ts';
import { failingOutput, failureExcerpt, passingOutput } from './check-output.ts';
import { cleanOutput, endLine, headAndTail } from './command-output.ts';
import { insertLines, strReplace, viewFile } from './editor.ts';
import type { EditResult } from './editor.ts';
import { quoteArgv } from './tokenizer.ts';
import { allowedText, decideTerminal, visibleChecks } from './policy.ts';
import type { AgentSandbox } from './port.ts';
import { deniedEdit, scopeFaultText } from './scope-text.ts';
import { createSearch, queryFault } from './search.ts';
import { decodeText, encodeText, withText } from './text-file.ts';
import type { TextFile } from './text-file.ts';
import type { WorkCall } from './tolerant.ts';
import { listFolder, namePath, pathsIn, shownPath, visiblePaths } from './workspace-path.ts';

/** What came of one call. `text` is what the model is answered. */
export interface ToolOutcome {
  readonly text: string;
  readonly ok: boolean;
  /** A code where the policy refused. */
  readonly denied: string | null;
  /** True where the sandbox ran out of something; repeated, that is a configuration blocker. */
  readonly exhausted: 'no_space' | 'out_of_memory' | null;
}

export interface Toolbox {
  /** Does a call other than `finish` and `think`. Throws SandboxFault `channel`, `engine`, `cancelled`, `limit-not-in-force`. */
  act(call: WorkCall, signal: AbortSignal): Promise<ToolOutcome>;
  /** Records a refusal that was decided outside (an unreadable call that asks for something forbidden). */
  refuse(request: string, code: string): Promise<void>;
  /** Every visible check has passed since the last edit. */
  allPassed(): boolean;
  /** Command lines of the visible checks that have not passed since the last edit. */
  unproven(): readonly string[];
  /** True once an edit was written. */
  edited(): boolean;
  /** Why the files, as they are, could not be accepted whatever the checks say; null where they stayed within scope. */
  outOfScope(): string | null;
}

/** A whole file may be written over only up to this size: beyond it small models drop parts. */
const wholeFileLimit = 16_384;
const undoDepth = 10;

/** The tools over one sandbox, with what an attempt has seen so far. */
export function createToolbox(
  contract: FrozenContract,
  switches: LoopSwitches,
  sandbox: AgentSandbox,
  scope: ScopeGuard,
): Toolbox {
  const viewed = new Set<RelPath>();
  const history = new Map<RelPath, { readonly bytes: Uint8Array; readonly fault: ScopeFault | null }[]>();
  /** Of files that were written although they do not parse: what is between two edits need not. */
  const unparsed = new Map<RelPath, ScopeFault>();
  const passed = new Set<string>();
  const findIn = createSearch(contract, sandbox);
  let lastFailure: { readonly check: string; readonly command: string; readonly excerpt: string } | null = null;
  let edits = 0;

  const answer = (text: string, ok: boolean): ToolOutcome => ({ text, ok, denied: null, exhausted: null });
  const deny = async (request: string, code: string, text: string): Promise<ToolOutcome> => {
    await sandbox.deny(request.slice(0, 400), code);
    return { text, ok: false, denied: code, exhausted: null };
  };

  const read = async (path: RelPath, signal: AbortSignal): Promise<FileRead | ToolOutcome> => {
    try {
      return await sandbox.read(path, 'agent', signal);
    } catch (error) {
      if (SandboxFault.is(error, 'not-found')) {
        const create = contract.writable.some((w) => w.path === path) ? ' It may be created with create.' : '';
        return answer(`${shownPath(path)} does not exist.${create}`, false);
      }
      throw error;
    }
  };

  const setFault = (path: RelPath, fault: ScopeFault | null): void => {
    if (fault === null) unparsed.delete(path);
    else unparsed.set(path, fault);
  };
  const outOfScope = (): string | null => {
    for (const [path, fault] of unparsed)
      return `${shownPath(path)} must parse, so that what is outside of its symbols can be compared. ${scopeFaultText(fault)}`;
    return null;
  };

  const written = async (
    path: RelPath,
    before: FileRead | null,
    bytes: Uint8Array,
    text: string,
    signal: AbortSignal,
  ): Promise<ToolOutcome> => {
    const { fault } = await scope.check(path, { bytes, executable: ((before?.mode ?? 0) & 0o111) > 0 });
    if (fault !== null && fault.reason !== 'does-not-parse') {
      const symbols = contract.writable.find((w) => w.path === path)?.symbols ?? [];
      return deny(`edit ${path} (${fault.reason})`, 'out_of_scope', deniedEdit(shownPath(path), symbols, fault));
    }
    await sandbox.write(path, bytes, before?.sha256 ?? null, signal);
    edits += 1;
    passed.clear();
    viewed.add(path);
    if (before !== null) {
      const former = { bytes: before.bytes, fault: unparsed.get(path) ?? null };
      history.set(path, [...(history.get(path) ?? []), former].slice(-undoDepth));
    }
    setFault(path, fault);
    const note = fault === null ? '' : `\n${scopeFaultText(fault)} Mend it with the next edit.`;
    const again =
      switches.repeatFailure && lastFailure !== null
        ? `\n\`${lastFailure.command}\` last failed with:\n${lastFailure.excerpt}\nRun it again.`
        : '';
    return answer(text + note + again, true);
  };

  /** Reads a declared file as text; answers where that is not possible. */
  const open = async (
    path: RelPath,
    signal: AbortSignal,
  ): Promise<{ readonly before: FileRead; readonly file: TextFile } | ToolOutcome> => {
    const before = await read(path, signal);
    if ('text' in before) return before;
    const file = decodeText(before.bytes);
    return file === null
      ? answer(`${shownPath(path)} is not a text file (UTF-8); it cannot be shown or edited.`, false)
      : { before, file };
  };

  const view = async (
    path: RelPath,
    range: readonly [number, number] | null,
    signal: AbortSignal,
  ): Promise<ToolOutcome> => {
    const opened = await open(path, signal);
    if ('text' in opened) return opened;
    const shown = viewFile(opened.file, shownPath(path), range);
    if (shown.ok) viewed.add(path);
    return answer(shown.text, shown.ok);
  };

  const edit = async (
    path: RelPath,
    change: (file: TextFile) => EditResult,
    signal: AbortSignal,
  ): Promise<ToolOutcome> => {
    const opened = await open(path, signal);
    if ('text' in opened) return opened;
    if (switches.viewBeforeEdit && !viewed.has(path)) {
      // Shown at once, so that the rule costs no request.
      viewed.add(path);
      const shown = viewFile(opened.file, shownPath(path), null);
      return answer(
        `Not changed: view a file before you edit it. Here it is; now repeat the edit.\n${shown.text}`,
        false,
      );
    }
    const result = change(opened.file);
    if (!result.ok) return answer(result.text, false);
    return written(path, opened.before, encodeText(result.file), result.text, signal);
  };

  const create = async (path: RelPath, text: string, signal: AbortSignal): Promise<ToolOutcome> => {
    const shown = shownPath(path);
    if (!text.isWellFormed()) return answer('Not written: file_text is not valid Unicode.', false);
    const before = await read(path, signal);
    if ('text' in before) {
      return written(path, null, Buffer.from(text, 'utf8'), `${shown} was created.`, signal);
    }
    const old = decodeText(before.bytes);
    if (!switches.wholeFile || old === null || before.bytes.length > wholeFileLimit)
      return answer(`Not written: ${shown} exists. Change it with str_replace or insert.`, false);
    if (switches.viewBeforeEdit && !viewed.has(path)) {
      viewed.add(path);
      return answer(
        `Not written: ${shown} exists and you have not viewed it. Here it is; change it with str_replace, or write it whole again.\n${viewFile(old, shown, null).text}`,
        false,
      );
    }
    const next = withText(old, text.replaceAll('\r\n', '\n'));
    if (next.raw === old.raw) return answer(`Not written: ${shown} already has exactly this text.`, false);
    return written(path, before, encodeText(next), `${shown} was written over as a whole.`, signal);
  };

  const undo = async (path: RelPath, signal: AbortSignal): Promise<ToolOutcome> => {
    const stack = history.get(path) ?? [];
    const former = stack.at(-1);
    if (former === undefined) return answer(`There is no edit of ${shownPath(path)} to take back.`, false);
    const before = await read(path, signal);
    if ('text' in before) return before;
    await sandbox.write(path, former.bytes, before.sha256, signal);
    history.set(path, stack.slice(0, -1));
    setFault(path, former.fault);
    edits += 1;
    passed.clear();
    const file = decodeText(former.bytes);
    const shown = file === null ? '' : `\n${viewFile(file, shownPath(path), null).text}`;
    return answer(`The last edit of ${shownPath(path)} was taken back.${shown}`, true);
  };

  const runCheck = async (id: string, signal: AbortSignal): Promise<ToolOutcome> => {
    const check = visibleChecks(contract).find((c) => c.id === id);
    if (check === undefined) throw new Error(`no visible check ${id}`);
    const result = await sandbox.run(id, signal);
    const output = cleanOutput(result.output);
    const ok = result.end.kind === 'exit' && result.end.code === 0;
    const lines = [headAndTail(ok ? passingOutput(output) : failingOutput(output), check.showKiB * 1024)];
    if (result.outputCut) lines.push('[the output was longer than what is kept; its rest is lost]');
    lines.push(endLine(result.end));
    if (ok && !result.outputCut) passed.add(id);
    else passed.delete(id);
    if (ok) {
      if (lastFailure?.check === id) lastFailure = null;
      const rest = unproven();
      const outside = outOfScope();
      lines.push(
        rest.length === 0
          ? outside !== null
            ? `All checks pass, but ${outside}`
            : edits > 0
              ? 'All checks pass. Call finish now.'
              : 'All checks pass on the unchanged files.'
          : `This check passes. Not yet passed since the last edit: ${rest.join('; ')}`,
      );
    } else lastFailure = { check: id, command: quoteArgv(check.argv), excerpt: failureExcerpt(output) };
    const exhausted = result.end.kind === 'oom' ? 'out_of_memory' : null;
    return { text: lines.filter((line) => line !== '').join('\n'), ok, denied: null, exhausted };
  };

  const unproven = (): readonly string[] =>
    visibleChecks(contract)
      .filter((check) => !passed.has(check.id))
      .map((check) => quoteArgv(check.argv));

  const terminal = async (command: string, signal: AbortSignal): Promise<ToolOutcome> => {
    const decision = decideTerminal(command, contract);
    switch (decision.kind) {
      case 'run':
        return runCheck(decision.check.id, signal);
      case 'read': {
        const named = namePath(decision.path, contract);
        if (named.kind === 'file') return view(named.path, null, signal);
        return deny(`terminal ${command}`, 'not_readable', notDeclared(decision.path, named, contract));
      }
      case 'denied':
        return deny(`terminal ${command}`, decision.code, decision.text);
      default:
        return unreachable(decision);
    }
  };

  const editor = async (
    call: Extract<WorkCall, { tool: 'file_editor' }>,
    signal: AbortSignal,
  ): Promise<ToolOutcome> => {
    const named = namePath(call.path, contract);
    const request = `file_editor ${call.command} ${call.path}`;
    if (named.kind === 'undeclared') return deny(request, 'not_readable', notDeclared(call.path, named, contract));
    if (named.kind === 'folder') {
      if (call.command === 'view') return answer(listFolder(named.path, visiblePaths(contract)), true);
      return answer(`${shownPath(named.path)} is a folder; only view works on it.`, false);
    }
    if (call.command !== 'view' && !named.writable)
      return deny(
        request,
        'not_writable',
        `Denied: ${shownPath(named.path)} is read-only. Writable: ${contract.writable.map((w) => shownPath(w.path)).join(', ')}.`,
      );
    const { path } = named;
    switch (call.command) {
      case 'view':
        return view(path, call.range, signal);
      case 'create':
        return create(path, call.fileText, signal);
      case 'str_replace':
        return edit(
          path,
          (file) => strReplace(file, shownPath(path), call.oldText, call.newText, { nearest: switches.nearestMatch }),
          signal,
        );
      case 'insert':
        return edit(path, (file) => insertLines(file, shownPath(path), call.line, call.newText), signal);
      case 'undo_edit':
        return undo(path, signal);
      default:
        return unreachable(call);
    }
  };

  const search = async (query: string, place: string | null, signal: AbortSignal): Promise<ToolOutcome> => {
    const request = `search ${query}${place === null ? '' : ` in ${place}`}`;
    if (!contract.tools.includes('search'))
      return deny(request, 'tool_not_allowed', `Denied: this task has no search.\n${allowedText(contract)}`);
    const visible = visiblePaths(contract);
    const named = namePath(place ?? '', contract);
    if (named.kind === 'undeclared') return deny(request, 'not_readable', notDeclared(place ?? '', named, contract));
    const fault = queryFault(query);
    if (fault !== null) return answer(fault, false);
    const { text, ok } = await findIn(
      named.kind === 'file' ? [named.path] : pathsIn(named.path, visible),
      query,
      signal,
    );
    return answer(text, ok);
  };

  const work = (call: WorkCall, signal: AbortSignal): Promise<ToolOutcome> => {
    switch (call.tool) {
      case 'terminal':
        return terminal(call.command, signal);
      case 'file_editor':
        return editor(call, signal);
      case 'search':
        return search(call.query, call.path, signal);
      default:
        return unreachable(call);
    }
  };

  return {
    async act(call, signal) {
      try {
        return await work(call, signal);
      } catch (error) {
        if (!SandboxFault.is(error)) throw error;
        switch (error.code) {
          case 'denied':
          case 'not-found':
          case 'conflict':
          case 'too-large':
          case 'invalid':
            return answer(`Not done (${error.code}): ${error.message.slice(0, 300)}`, false);
          case 'no-space':
            return { text: 'Not done: the workspace is full.', ok: false, denied: null, exhausted: 'no_space' };
          case 'channel':
          case 'engine':
          case 'limit-not-in-force':
          case 'cancelled':
            throw error;
          default:
            return unreachable(error.code);
        }
      }
    },
    refuse: async (request, code) => sandbox.deny(request.slice(0, 400), code),
    allPassed: () => unproven().length === 0,
    unproven,
    edited: () => edits > 0,
    outOfScope,
  };
}

function notDeclared(
  raw: string,
  named: { readonly kind: 'folder' | 'undeclared'; readonly suggestion?: string | null },
  contract: FrozenContract,
): string {
  if (named.kind === 'folder')
    return `Denied: ${raw.slice(0, 200)} is a folder; use file_editor view.\n${allowedText(contract)}`;
  const suggestion = named.suggestion ?? null;
  const meant = suggestion === null ? '' : ` Did you mean ${suggestion}?`;
  const visible = visiblePaths(contract).slice(0, 20).map(shownPath).join(', ');
  return `Denied: "${raw.slice(0, 200)}" is not a file of this task.${meant} Files: ${visible}.`;
}
