import { appendFileSync } from 'node:fs';

/** Called by name around an effect. Without a test's variable it costs a call. */
export type CrashPoint = (point: string) => void;

/**
 * Named places around effects (fsync, rename, commit, engine call, frame) at which a test kills this process.
 * `ESCROW_CRASH_AT=<point>[:<nth>]` ends it there with SIGKILL, as a power cut would: no handler runs.
 * `ESCROW_CRASH_TRACE=<file>` writes the name of each place that is passed, so that a test learns which there are.
 */
export function crashPoints(env: Readonly<Record<string, string | undefined>>): CrashPoint {
  const trace = env['ESCROW_CRASH_TRACE'] ?? '';
  if (trace !== '') return (point) => appendFileSync(trace, `${point}\n`);
  const wanted = env['ESCROW_CRASH_AT'] ?? '';
  if (wanted === '') return () => undefined;
  const [name = '', nth = '1'] = wanted.split(':');
  let left = Number(nth);
  return (point) => {
    if (point !== name) return;
    left -= 1;
    if (left <= 0) process.kill(process.pid, 'SIGKILL');
  };
}

/** The same object, with a named point before and after each of these calls: `<prefix>-before-<method>`. */
export function withPoints<T extends object>(
  object: T,
  prefix: string,
  methods: ReadonlySet<PropertyKey>,
  at: CrashPoint,
): T {
  return new Proxy(object, {
    get(target, name) {
      const member: unknown = Reflect.get(target, name, target);
      if (typeof member !== 'function') return member;
      if (!methods.has(name)) return member.bind(target) as unknown;
      return async (...args: unknown[]): Promise<unknown> => {
        at(`${prefix}-before-${String(name)}`);
        const answer: unknown = await Reflect.apply(member, target, args);
        at(`${prefix}-after-${String(name)}`);
        return answer;
      };
    },
  });
}
