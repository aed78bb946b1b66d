/** What a marker of a requirement may ask of the Python that it is for (PEP 508). */
export interface MarkerEnvironment {
  readonly python_version: string;
  readonly python_full_version: string;
  readonly os_name: string;
  readonly sys_platform: string;
  readonly platform_system: string;
  readonly platform_machine: string;
  readonly platform_python_implementation: string;
  readonly implementation_name: string;
}

type Token = { readonly kind: 'name' | 'text' | 'operator' | 'open' | 'close'; readonly value: string };

const pattern =
  /\s*(?:(?<open>\()|(?<close>\))|(?<operator>===|==|~=|!=|<=|>=|<|>|not\s+in\b|in\b)|(?:'(?<single>[^']*)'|"(?<double>[^"]*)")|(?<name>[A-Za-z_][\w.]*))/y;

function tokens(marker: string): readonly Token[] {
  const found: Token[] = [];
  pattern.lastIndex = 0;
  while (pattern.lastIndex < marker.trimEnd().length) {
    const groups = pattern.exec(marker)?.groups;
    if (groups === undefined) throw new SyntaxError('not a marker');
    const text = groups['single'] ?? groups['double'];
    if (text !== undefined) found.push({ kind: 'text', value: text });
    else if (groups['open'] !== undefined) found.push({ kind: 'open', value: '(' });
    else if (groups['close'] !== undefined) found.push({ kind: 'close', value: ')' });
    else if (groups['operator'] !== undefined) {
      found.push({ kind: 'operator', value: groups['operator'].replace(/\s+/, ' ') });
    } else found.push({ kind: 'name', value: groups['name'] ?? '' });
  }
  return found;
}

/** Markers are read by functions that call themselves; those of real lock files nest a few levels. */
const maxDepth = 50;

/**
 * Whether a marker holds. Own rather than the client's: that would ask the Python that it runs under, not the one that
 * the packages are for. Throws SyntaxError for what is no marker or asks for what is not known.
 */
export function markerHolds(marker: string, environment: MarkerEnvironment): boolean {
  const list = tokens(marker);
  let at = 0;
  const peek = (): Token | undefined => list[at];
  const next = (): Token => {
    const token = list[at];
    if (token === undefined) throw new SyntaxError('the marker ends too early');
    at += 1;
    return token;
  };
  const word = (value: string): boolean => {
    const token = peek();
    if (token?.kind !== 'name' || token.value !== value) return false;
    at += 1;
    return true;
  };
  const either = (): boolean => {
    let holds = both();
    // No short circuit: the rest must be read all the same.
    while (word('or')) holds = both() || holds;
    return holds;
  };
  const both = (): boolean => {
    let holds = one();
    while (word('and')) holds = one() && holds;
    return holds;
  };
  let depth = 0;
  const one = (): boolean => {
    if (peek()?.kind === 'open') {
      next();
      depth += 1;
      if (depth > maxDepth) throw new SyntaxError('its parentheses are nested too deeply');
      const holds = either();
      depth -= 1;
      if (next().kind !== 'close') throw new SyntaxError('a parenthesis is not closed');
      return holds;
    }
    const left = next();
    const operator = next();
    const right = next();
    if (operator.kind !== 'operator') throw new SyntaxError('a comparison is expected');
    return compare(left, operator.value, right, environment);
  };
  const holds = either();
  if (at < list.length) throw new SyntaxError('the marker goes on after its end');
  return holds;
}

function valueOf(token: Token, environment: MarkerEnvironment): string {
  if (token.kind === 'text') return token.value;
  if (token.kind !== 'name') throw new SyntaxError('a name or a text is expected');
  // Asked for without extras, as a lock file's own lines are.
  if (token.value === 'extra') return '';
  const value: string | undefined = { ...environment }[token.value as keyof MarkerEnvironment];
  if (value === undefined) throw new SyntaxError(`"${token.value}" is not known before the image runs`);
  return value;
}

function compare(left: Token, operator: string, right: Token, environment: MarkerEnvironment): boolean {
  const a = valueOf(left, environment);
  const b = valueOf(right, environment);
  const versions = [left, right].some(({ kind, value }) => kind === 'name' && /^python_(?:full_)?version$/.test(value));
  if (operator === 'in') return versions ? b.split(/[\s,]+/).includes(a) : b.includes(a);
  if (operator === 'not in') return versions ? !b.split(/[\s,]+/).includes(a) : !b.includes(a);
  if (!versions) {
    if (operator === '==' || operator === '===') return a === b;
    if (operator === '!=') return a !== b;
    throw new SyntaxError(`"${operator}" is not for texts`);
  }
  if (b.endsWith('.*')) {
    const prefix = numbers(b.slice(0, -2));
    const same = prefix.every((part, n) => part === (numbers(a)[n] ?? 0));
    if (operator === '==') return same;
    if (operator === '!=') return !same;
    throw new SyntaxError(`"${operator}" is not for prefixes`);
  }
  const order = compareVersions(numbers(a), numbers(b));
  switch (operator) {
    case '==':
    case '===':
      return order === 0;
    case '!=':
      return order !== 0;
    case '<':
      return order < 0;
    case '<=':
      return order <= 0;
    case '>':
      return order > 0;
    case '>=':
      return order >= 0;
    case '~=': {
      const series = numbers(b).slice(0, -1);
      return order >= 0 && series.every((part, n) => part === (numbers(a)[n] ?? 0));
    }
    default:
      throw new SyntaxError(`"${operator}" is not known`);
  }
}

function numbers(version: string): readonly number[] {
  if (!/^\d+(?:\.\d+)*$/.test(version)) throw new SyntaxError(`"${version}" is not a plain version`);
  return version.split('.').map(Number);
}

function compareVersions(a: readonly number[], b: readonly number[]): number {
  for (let n = 0; n < Math.max(a.length, b.length); n += 1) {
    const difference = (a[n] ?? 0) - (b[n] ?? 0);
    if (difference !== 0) return difference;
  }
  return 0;
}
