import { existsSync } from 'node:fs';
import path from 'node:path';

/** The part of a platform that chooses a prebuilt binary. */
export interface NativeTarget {
  readonly platform: NodeJS.Platform;
  readonly arch: string;
  readonly musl: boolean;
}

function isMusl(): boolean {
  if (process.platform !== 'linux') return false;
  const report = process.report.getReport() as { header?: { glibcVersionRuntime?: string } };
  return report.header?.glibcVersionRuntime === undefined;
}

/** File name of SQLite's binding for a platform, as better-sqlite3 names its prebuilt files. */
export function nativeFileName(target: NativeTarget): string {
  return `${target.platform === 'linux' && target.musl ? 'linuxmusl' : target.platform}-${target.arch}.node`;
}

/**
 * The binding that was shipped beside the bundle (`<dist>/prebuilds/<platform>-<arch>.node`); undefined when there is
 * none, which means that better-sqlite3 finds its own in node_modules.
 */
export function shippedBinding(distDir: string): string | undefined {
  const file = path.join(
    distDir,
    'prebuilds',
    nativeFileName({ platform: process.platform, arch: process.arch, musl: isMusl() }),
  );
  return existsSync(file) ? file : undefined;
}
