/** Version of this build; a unit test holds it equal to package.json. */
export const productVersion = '0.1.0';

/** Compares two versions by their numbers; what follows a dash is ignored. Negative: `a` is older. */
export function compareVersions(a: string, b: string): number {
  const numbers = (v: string): number[] => (v.split('-')[0] ?? '').split('.').map((n) => Number.parseInt(n, 10) || 0);
  const [x, y] = [numbers(a), numbers(b)];
  for (let i = 0; i < Math.max(x.length, y.length); i++) {
    const difference = (x[i] ?? 0) - (y[i] ?? 0);
    if (difference !== 0) return difference;
  }
  return 0;
}
