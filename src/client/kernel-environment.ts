import os from 'node:os';

/** Programs the Kernel may look for (git); never the PATH of the window that happened to start it. */
const posixPath = '/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin:/opt/homebrew/bin';

type Environment = Readonly<Record<string, string | undefined>>;

/**
 * Where the user has chosen a container engine, as Docker's own tools read it: DOCKER_HOST, else a context. Another
 * machine's is refused by the Kernel unless a machine setting names it.
 */
const engineChoice: readonly string[] = ['DOCKER_HOST', 'DOCKER_CONTEXT', 'DOCKER_CONFIG'];

/** What belongs to the user and machine rather than to a window, and is taken over as it is. */
const inherited: Readonly<Record<'posix' | 'windows', readonly string[]>> = {
  posix: ['USER', 'LOGNAME', 'TMPDIR', 'XDG_RUNTIME_DIR', ...engineChoice],
  windows: [
    'SystemRoot',
    'SystemDrive',
    'ComSpec',
    'PATHEXT',
    'USERNAME',
    'USERPROFILE',
    'LOCALAPPDATA',
    'APPDATA',
    'ProgramData',
    'ProgramFiles',
    'TEMP',
    'TMP',
    ...engineChoice,
  ],
};

/**
 * The fixed environment of a Kernel process, the same from every client of a user: nothing of the window's (no VSCODE_*, ELECTRON_*, NODE_OPTIONS, proxies,
 * credentials) is frozen into later work. `extra` is for tests.
 */
export function kernelEnvironment(options: {
  readonly home: string;
  readonly electron: boolean;
  readonly extra?: Readonly<Record<string, string>> | undefined;
  readonly from?: Environment;
}): Record<string, string> {
  const from = options.from ?? process.env;
  const windows = process.platform === 'win32';
  const taken = Object.fromEntries(
    inherited[windows ? 'windows' : 'posix'].flatMap((name) => {
      const value = from[name];
      return value === undefined ? [] : [[name, value]];
    }),
  );
  const root = from['SystemRoot'] ?? 'C:\\Windows';
  return {
    ...taken,
    HOME: os.homedir(),
    PATH: windows ? `${root}\\System32;${root};C:\\Program Files\\Git\\cmd` : posixPath,
    LANG: 'C.UTF-8',
    ESCROW_HOME: options.home,
    ...options.extra,
    // VS Code's own runtime is Node only when told so; the Kernel deletes it at entry.
    ...(options.electron ? { ELECTRON_RUN_AS_NODE: '1' } : {}),
  };
}
