import { markerHolds, type MarkerEnvironment } from './markers.ts';

/** One line of a requirements file: exactly one version, and the hashes of the archives that may stand for it. */
export interface PythonRequirement {
  readonly name: string;
  readonly extras: string;
  readonly version: string;
  readonly marker: string | null;
  /** `sha256:…`, as the file has them. */
  readonly hashes: readonly string[];
}

type Read =
  | { readonly ok: true; readonly requirements: readonly PythonRequirement[] }
  | { readonly ok: false; readonly reason: string };

const maxRequirements = 5_000;
const requirement =
  /^(?<name>[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?)\s*(?<extras>\[[\w\s.,-]*\])?\s*==\s*(?<version>[A-Za-z0-9.!+_-]+)\s*(?:;(?<marker>.*))?$/s;

/**
 * Reads a requirements file in which every line pins a version by hash (as `uv pip compile --generate-hashes` and
 * pip-compile write it). Refused is everything else: options, other indexes, other files, addresses, editable installs,
 * ranges. Pure; the text is hostile.
 */
export function readPythonLock(text: string): Read {
  const requirements: PythonRequirement[] = [];
  const lines = text.replace(/\r\n?/g, '\n').split('\n');
  for (let n = 0; n < lines.length; n += 1) {
    const first = n + 1;
    const parts: string[] = [];
    let part = withoutComment(lines[n] ?? '');
    while (part.endsWith('\\') && n + 1 < lines.length) {
      parts.push(part.slice(0, -1));
      n += 1;
      part = withoutComment(lines[n] ?? '');
    }
    // One space for each run of white space: patterns that look for some would take its square in time.
    const logical = [...parts, part].join(' ').replace(/\s+/g, ' ').trim();
    if (logical === '') continue;
    const refuse = (why: string): Read => ({ ok: false, reason: `line ${first}: ${why}` });
    if (logical.startsWith('-')) {
      return refuse('options are not taken from the repository (indexes come from your own configuration)');
    }
    const [spec = '', ...options] = logical.split(/ (?=--)/);
    const groups = requirement.exec(spec.trim())?.groups;
    if (groups === undefined) return refuse('only NAME==VERSION with hashes is supported');
    const hashes: string[] = [];
    for (const option of options) {
      const hash = /^--hash[=\s]\s*(sha(?:256|384|512):[0-9a-f]+)$/.exec(option.trim())?.[1];
      if (hash === undefined) return refuse('only --hash=sha256:… may follow a requirement');
      hashes.push(hash);
    }
    if (hashes.length === 0) return refuse(`${groups['name']} has no hash (compile it with --generate-hashes)`);
    requirements.push({
      name: groups['name'] ?? '',
      extras: groups['extras'] ?? '',
      version: groups['version'] ?? '',
      marker: groups['marker']?.trim() ?? null,
      hashes,
    });
    if (requirements.length > maxRequirements) return refuse(`more than ${maxRequirements} requirements`);
  }
  return { ok: true, requirements };
}

function withoutComment(line: string): string {
  return line.replace(/(?:^|\s)#.*$/, '').trimEnd();
}

/** The requirements whose markers hold there. Throws SyntaxError, naming the requirement, for a marker that can't be decided. */
export function requirementsFor(
  requirements: readonly PythonRequirement[],
  environment: MarkerEnvironment,
): readonly PythonRequirement[] {
  return requirements.filter(({ name, marker }) => {
    if (marker === null) return true;
    try {
      return markerHolds(marker, environment);
    } catch (error) {
      if (error instanceof SyntaxError) throw new SyntaxError(`${name}: ${error.message}`, { cause: error });
      throw error;
    }
  });
}

/** A requirements file for pip with nothing in it but names, versions and hashes. */
export function barePythonLock(requirements: readonly PythonRequirement[]): string {
  return requirements
    .map(
      ({ name, extras, version, hashes }) =>
        `${name}${extras}==${version} ${hashes.map((h) => `--hash=${h}`).join(' ')}\n`,
    )
    .join('');
}
