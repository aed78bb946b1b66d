import type { MarkerEnvironment } from './markers.ts';

/** What packages with compiled code must fit: read from an image's files, nothing of it is run. */
export interface ImagePlatform {
  /** As the engine names it. */
  readonly architecture: 'amd64' | 'arm64';
  readonly libc: { readonly kind: 'glibc' | 'musl'; readonly major: number; readonly minor: number } | null;
  readonly python: {
    /** Absolute path in the image. */
    readonly program: string;
    /** Of CPython 3. */
    readonly minor: number;
    /** With the patch level, as far as its files tell. */
    readonly full: string;
  } | null;
}

/** Names of a processor for npm and for Python. */
export const processorNames = {
  amd64: { npm: 'x64', python: 'x86_64' },
  arm64: { npm: 'arm64', python: 'aarch64' },
} as const;

/** Platform tags of wheels that run there, best first; pip adds `any` by itself. */
export function wheelPlatforms(platform: ImagePlatform): readonly string[] {
  const { libc } = platform;
  const processor = processorNames[platform.architecture].python;
  if (libc === null) return [];
  // The oldest that each names: glibc 2.5 (2.17 on ARM, which is younger), musl 1.1.
  const oldest = libc.kind === 'musl' ? 1 : platform.architecture === 'amd64' ? 5 : 17;
  const prefix = libc.kind === 'musl' ? 'musllinux' : 'manylinux';
  const versions = Array.from({ length: Math.max(0, libc.minor - oldest + 1) }, (_, n) => libc.minor - n);
  const tags = versions.map((minor) => `${prefix}_${libc.major}_${minor}_${processor}`);
  if (libc.kind === 'musl') return tags;
  const old =
    platform.architecture === 'amd64'
      ? ([
          ['manylinux2014', 17],
          ['manylinux2010', 12],
          ['manylinux1', 5],
        ] as const)
      : ([['manylinux2014', 17]] as const);
  return [...tags, ...old.filter(([, least]) => libc.minor >= least).map(([name]) => `${name}_${processor}`)];
}

/** What markers of requirements are answered from. */
export function markerEnvironment(platform: ImagePlatform): MarkerEnvironment | null {
  if (platform.python === null) return null;
  return {
    python_version: `3.${platform.python.minor}`,
    python_full_version: platform.python.full,
    os_name: 'posix',
    sys_platform: 'linux',
    platform_system: 'Linux',
    platform_machine: processorNames[platform.architecture].python,
    platform_python_implementation: 'CPython',
    implementation_name: 'cpython',
  };
}
