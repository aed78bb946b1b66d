import type { ContainerEngine } from './engine.ts';

/** Calls that change a container or on which the record of one rests. The others are looked up often and tell nothing. */
const called = new Set<PropertyKey>(['create', 'start', 'attach', 'inspect', 'kill', 'remove', 'list', 'exec']);

/** The same engine, with a named point before and after each of its calls, where a test can end this process. */
export function withPoints(engine: ContainerEngine, at: (point: string) => void): ContainerEngine {
  return new Proxy(engine, {
    get(target, name) {
      const member: unknown = Reflect.get(target, name, target);
      if (typeof member !== 'function') return member;
      if (!called.has(name)) return member.bind(target) as unknown;
      return async (...args: unknown[]): Promise<unknown> => {
        at(`engine-before-${String(name)}`);
        const answer: unknown = await Reflect.apply(member, target, args);
        at(`engine-after-${String(name)}`);
        return answer;
      };
    },
  });
}
