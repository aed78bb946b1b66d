/**
 * Named places around effects at which a test kills this process. `ESCROW_CRASH_AT=<point>[:<nth>]` ends it there with
 * SIGKILL, as a power cut would: no handler runs. Without the variable a point costs a comparison.
 */
export function crashPoints(env: Readonly<Record<string, string | undefined>>): (point: string) => void {
  const wanted = env['ESCROW_CRASH_AT'];
  if (wanted === undefined || wanted === '') return () => undefined;
  const [name = '', nth = '1'] = wanted.split(':');
  let left = Number(nth);
  return (point) => {
    if (point !== name) return;
    left -= 1;
    if (left <= 0) process.kill(process.pid, 'SIGKILL');
  };
}
