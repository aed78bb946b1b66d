/**
 * Checks of untrusted JSON for the channel between Kernel and executor. The executor is carried into every sandbox and
 * has no packages, so that a careful person can read all of it, and constructs nothing at its start that costs a
 * container's time (the schemas of the Kernel's own library took 50 ms of processor there); and each tool call is
 * checked on both sides. A shape changes nothing; it only looks.
 */
export interface Shape<T> {
  /** Undefined where the value fits; else where it does not: `''` for itself, `.size` for a member. */
  misfit(value: unknown): string | undefined;
  /** Only for types: never there. */
  readonly of?: T;
}
export type Fitting<S> = S extends Shape<infer T> ? T : never;

/** A member that may be left out. */
export interface Optional<T> extends Shape<T> {
  readonly optional: true;
}
type Members = Readonly<Record<string, Shape<unknown>>>;
type Flat<T> = { readonly [K in keyof T]: T[K] };
type OptionalNames<M> = { [K in keyof M]: M[K] extends { readonly optional: true } ? K : never }[keyof M];
type ObjectOf<M extends Members> = Flat<
  { readonly [K in Exclude<keyof M, OptionalNames<M>>]: Fitting<M[K]> } & {
    readonly [K in OptionalNames<M>]?: Fitting<M[K]> | undefined;
  }
>;

export function fits<T>(shape: Shape<T>, value: unknown): value is T {
  return shape.misfit(value) === undefined;
}

const shapeOf = <T>(accepts: (value: unknown) => boolean): Shape<T> => ({
  misfit: (value) => (accepts(value) ? undefined : ''),
});

export const flag: Shape<boolean> = shapeOf((value) => typeof value === 'boolean');

/** Lengths are in UTF-16 units, as everywhere in the protocol. */
export function text<T extends string = string>(bounds: {
  readonly min?: number;
  readonly max: number;
  readonly matches?: RegExp;
}): Shape<T> {
  const { min = 0, max, matches } = bounds;
  return shapeOf(
    (value) =>
      typeof value === 'string' &&
      value.length >= min &&
      value.length <= max &&
      (matches === undefined || matches.test(value)),
  );
}

export function integer(min: number, max: number = Number.MAX_SAFE_INTEGER): Shape<number> {
  return shapeOf((value) => Number.isSafeInteger(value) && (value as number) >= min && (value as number) <= max);
}

export const finite: Shape<number> = shapeOf((value) => Number.isFinite(value));

/** Not negative, and finite. */
export const amount: Shape<number> = shapeOf((value) => Number.isFinite(value) && (value as number) >= 0);

export function literal<const T extends string | number | boolean>(wanted: T): Shape<T> {
  return shapeOf((value) => value === wanted);
}

export function oneOf<const T extends string>(wanted: readonly T[]): Shape<T> {
  return shapeOf((value) => (wanted as readonly unknown[]).includes(value));
}

export function nullable<T>(shape: Shape<T>): Shape<T | null> {
  return { misfit: (value) => (value === null ? undefined : shape.misfit(value)) };
}

export function optional<T>(shape: Shape<T>): Optional<T> {
  return { misfit: (value) => shape.misfit(value), optional: true };
}

export function list<T>(of: Shape<T>, bounds: { readonly min?: number; readonly max: number }): Shape<readonly T[]> {
  const { min = 0, max } = bounds;
  return {
    misfit: (value) => {
      if (!Array.isArray(value) || value.length < min || value.length > max) return '';
      for (const [index, each] of value.entries()) {
        const inner = of.misfit(each);
        if (inner !== undefined) return `[${index}]${inner}`;
      }
      return undefined;
    },
  };
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Any names that fit, each with a value that fits. */
export function record<T>(names: RegExp, of: Shape<T>): Shape<Readonly<Record<string, T>>> {
  return {
    misfit: (value) => {
      if (!isRecord(value)) return '';
      for (const [name, each] of Object.entries(value)) {
        const inner = names.test(name) ? of.misfit(each) : '';
        if (inner !== undefined) return `.${name.slice(0, 64)}${inner}`;
      }
      return undefined;
    },
  };
}

export const anything: Shape<unknown> = { misfit: () => undefined };

/** Exactly these members, no others. */
export function object<const M extends Members>(members: M): Shape<ObjectOf<M>> {
  const parts = Object.entries(members).map(([name, shape]) => ({ name, shape, required: !('optional' in shape) }));
  return {
    misfit: (value) => {
      if (!isRecord(value)) return '';
      let known = 0;
      for (const { name, shape, required } of parts) {
        if (!Object.hasOwn(value, name)) {
          if (required) return `.${name}`;
          continue;
        }
        known += 1;
        const inner = shape.misfit(value[name]);
        if (inner !== undefined) return `.${name}${inner}`;
      }
      const names = Object.keys(value);
      if (names.length === known) return undefined;
      const extra = names.find((name) => !Object.hasOwn(members, name)) ?? '';
      return `.${extra.slice(0, 64)}`;
    },
  };
}

/** One of several objects, told apart by the text in the named member. */
export function byKind<const K extends Readonly<Record<string, Shape<unknown>>>>(
  member: string,
  kinds: K,
): Shape<Fitting<K[keyof K]>> {
  return {
    misfit: (value) => {
      if (!isRecord(value)) return '';
      const kind = value[member];
      const shape = typeof kind === 'string' && Object.hasOwn(kinds, kind) ? kinds[kind] : undefined;
      return shape === undefined ? `.${member}` : shape.misfit(value);
    },
  };
}
