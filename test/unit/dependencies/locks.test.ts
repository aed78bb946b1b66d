// What may be installed from a lock file, and what is refused before anything is fetched.
import { array, assert, constantFrom, json, oneof, property, string } from 'fast-check';
import { describe, expect, it } from 'vitest';
import { withInterpreter } from '../../../src/server/dependencies/install-python.ts';
import { markerHolds, type MarkerEnvironment } from '../../../src/server/dependencies/markers.ts';
import {
  bareNpmLock,
  barePackageManifest,
  manifestFault,
  readNpmLock,
} from '../../../src/server/dependencies/npm-lock.ts';
import { wheelPlatforms } from '../../../src/server/dependencies/platform.ts';
import { barePythonLock, readPythonLock, requirementsFor } from '../../../src/server/dependencies/python-lock.ts';

const integrity = 'sha512-KHsob+Fv9YerATvYujMbiyJqnRCvLtrcr/eTNqRqiOSGp97EOiRP1yP47+knGgQ/xnc3XY8xzkW587dlZzNqRA==';
const lockOf = (packages: Record<string, unknown>, lockfileVersion = 3): string =>
  JSON.stringify({ lockfileVersion, packages: { '': { name: 'x' }, ...packages } });
const good = { version: '1.0.0', integrity };

describe('a package-lock.json', () => {
  it('tells packages, the workspace’s own ones, and where node_modules folders are', () => {
    const read = readNpmLock(
      lockOf({
        'node_modules/a': { ...good, bundleDependencies: ['inner'] },
        'node_modules/@s/b': { ...good, resolved: 'https://registry.example/b.tgz', optional: true },
        'packages/web': { version: '0.0.1' },
        'packages/web/node_modules/a': { ...good, version: '2.0.0' },
        'node_modules/web': { resolved: 'packages/web', link: true },
        'node_modules/alias': { ...good, name: 'real' },
        'node_modules/a/node_modules/inner': { version: '1.0.0', inBundle: true, dependencies: { beside: '1' } },
        'node_modules/a/node_modules/inner/node_modules/deep': { version: '1.0.0', inBundle: true },
        'node_modules/a/node_modules/beside': { version: '1.0.0', inBundle: true },
      }),
    );
    expect(read).toMatchObject({
      ok: true,
      lock: {
        members: ['packages/web'],
        moduleFolders: ['', 'packages/web'],
        packages: [
          { name: 'a', version: '1.0.0', resolved: null, optional: false },
          { name: '@s/b', optional: true },
          { name: 'a', version: '2.0.0', folder: 'packages/web/node_modules/a' },
          { name: 'real', folder: 'node_modules/alias' },
        ],
      },
    });
  });

  it.each([
    ['git', { 'node_modules/a': { ...good, resolved: 'git+ssh://git@host/a.git#1' } }, /HTTPS/],
    ['a file', { 'node_modules/a': { ...good, resolved: 'file:../a.tgz' } }, /HTTPS/],
    ['plain HTTP', { 'node_modules/a': { ...good, resolved: 'http://host/a.tgz' } }, /HTTPS/],
    ['no hash', { 'node_modules/a': { version: '1.0.0' } }, /SHA/],
    ['SHA-1 only', { 'node_modules/a': { version: '1.0.0', integrity: 'sha1-AAAA' } }, /SHA/],
    ['a link out of the workspace', { 'node_modules/a': { resolved: '../other', link: true } }, /outside/],
    ['a folder above', { 'node_modules/../../a': good }, /no folder/],
    ['an absolute folder', { '/etc/node_modules/a': good }, /no folder/],
    ['a backslash', { 'node_modules\\a': good }, /no folder/],
    // npm looks for itself whether something comes with the archive around it, and fetches it where it does not.
    [
      'an address of what calls itself bundled',
      { 'node_modules/a': { ...good, resolved: 'http://host/a', inBundle: true } },
      /HTTPS/,
    ],
    [
      'git behind the same word',
      { 'node_modules/a': { version: '1.0.0', resolved: 'git+ssh://host/a#1', inBundle: true } },
      /HTTPS/,
    ],
    ['the word alone', { 'node_modules/a': { version: '1.0.0', inBundle: true } }, /SHA/],
    [
      'the word beside a package that bundles another',
      {
        'node_modules/a': { ...good, bundleDependencies: ['b', 'b/node_modules/c'] },
        'node_modules/a/node_modules/c': { version: '1.0.0', inBundle: true },
      },
      /SHA/,
    ],
    ['a file as version', { 'node_modules/a': { version: 'file:../../../a.tgz', integrity } }, /no version/],
    ['git as version', { 'node_modules/a': { version: 'git+ssh://host/a', integrity } }, /no version/],
    [
      'a wish for an address',
      { 'node_modules/a': { ...good, dependencies: { b: 'http://host/b.tgz' } } },
      /no registry/,
    ],
    ['a wish for git', { 'packages/a': { version: '1.0.0', devDependencies: { b: 'user/b' } } }, /no registry/],
    ['a wish of its own for git', { '': { peerDependencies: { b: 'git+ssh://host/b' } } }, /no registry/],
    [
      'a wish for a folder outside',
      { 'packages/a': { version: '1.0.0', dependencies: { b: 'file:../../../b' } } },
      /no registry/,
    ],
  ])('with %s is refused', (_name, packages, why) => {
    expect(readNpmLock(lockOf(packages))).toMatchObject({ ok: false, reason: expect.stringMatching(why) });
  });

  it('of npm 6, or that is no lock file, is refused', () => {
    expect(readNpmLock(lockOf({}, 1))).toMatchObject({ ok: false });
    for (const text of ['', '[]', '{}', 'null', '{"lockfileVersion":3}']) expect(readNpmLock(text).ok).toBe(false);
  });

  it('never throws, whatever the text', () => {
    assert(property(string(), (text) => readNpmLock(text).ok === false));
    assert(property(json(), (text) => typeof readNpmLock(text).ok === 'boolean'));
  });

  it('that is nested without end is refused, as is such a manifest', () => {
    const deep = `${'['.repeat(200_000)}${']'.repeat(200_000)}`;
    expect(readNpmLock(`{"lockfileVersion":3,"packages":{"":{"workspaces":${deep}}}}`)).toMatchObject({ ok: false });
    expect(manifestFault(`{"workspaces":${deep}}`, 'package.json')).toBe('is no package.json');
    expect(manifestFault(`{"overrides":${deep}}`, 'package.json')).toBe('is no package.json');
  });

  it.each(['1', '^1.2 || >=2 <3', '*', '', 'latest', 'npm:@s/b@^1', 'file:../b', './b', '~1.2'])(
    'may want %s',
    (spec) => {
      expect(readNpmLock(lockOf({ 'packages/a': { version: '1.0.0', dependencies: { b: spec } } })).ok).toBe(true);
      expect(manifestFault(JSON.stringify({ dependencies: { b: spec } }), 'packages/a/package.json')).toBeNull();
    },
  );

  it.each([
    'http://host/b',
    'https://host/b.tgz',
    'git+file:///b',
    'git@host:b',
    'user/b',
    'github:user/b',
    '/b',
    '~/b',
    '..',
    'b.tgz',
    'file:/b',
    'file:../../b',
    'file:%2e%2e/%2e%2e/b',
    'npm:b@http://host/b',
  ])('goes with no manifest that wants %s: npm would look there before it compares', (spec) => {
    for (const manifest of [{ dependencies: { b: spec } }, { overrides: { a: { b: { '.': spec } } } }])
      expect(manifestFault(JSON.stringify(manifest), 'packages/package.json')).toMatch(/no registry/);
  });

  it('goes to npm without what nobody has looked at', () => {
    const entry = { ...good, dependencies: { b: '1' }, bin: { a: 'a.js' } };
    const unseen = {
      _resolved: 'http://host/a.tgz',
      _hasShrinkwrap: true,
      hasShrinkwrap: true,
      scripts: { install: 'x' },
    };
    const bare = bareNpmLock(lockOf({ 'node_modules/a': { ...entry, ...unseen } }));
    expect(JSON.parse(bare)).toEqual({
      lockfileVersion: 3,
      requires: true,
      packages: { '': { name: 'x' }, 'node_modules/a': entry },
    });
    expect(() => bareNpmLock(lockOf({ 'node_modules/a': { version: '1.0.0' } }))).toThrow(/SHA/);
  });

  it('goes with manifests without scripts and configuration', () => {
    const bare = barePackageManifest(
      JSON.stringify({
        name: 'a',
        scripts: { preinstall: 'evil' },
        dependencies: { b: '1' },
        config: { x: 1 },
        gypfile: true,
      }),
    );
    expect(JSON.parse(bare ?? '')).toEqual({ name: 'a', dependencies: { b: '1' } });
    for (const text of ['', '[]', 'null', '1']) expect(barePackageManifest(text)).toBeNull();
  });
});

const hash = `sha256:${'a'.repeat(64)}`;
const here: MarkerEnvironment = {
  python_version: '3.13',
  python_full_version: '3.13.5',
  os_name: 'posix',
  sys_platform: 'linux',
  platform_system: 'Linux',
  platform_machine: 'x86_64',
  platform_python_implementation: 'CPython',
  implementation_name: 'cpython',
};

describe('a requirements file', () => {
  it('tells versions, hashes, extras and markers', () => {
    const read = readPythonLock(
      `# made by a tool\nnumpy==2.5.5 ; python_full_version >= '3.12' \\\n    --hash=${hash} \\\n    --hash=sha512:${'b'.repeat(128)}\n    # via -r requirements.in\nrequests[socks]==2.0 --hash=${hash}\r\n`,
    );
    expect(read).toEqual({
      ok: true,
      requirements: [
        {
          name: 'numpy',
          extras: '',
          version: '2.5.5',
          marker: "python_full_version >= '3.12'",
          hashes: [hash, `sha512:${'b'.repeat(128)}`],
        },
        { name: 'requests', extras: '[socks]', version: '2.0', marker: null, hashes: [hash] },
      ],
    });
  });

  it.each([
    ['no hash', 'a==1', /no hash/],
    ['a range', `a>=1 --hash=${hash}`, /NAME==VERSION/],
    ['an address', `a @ https://host/a.whl --hash=${hash}`, /NAME==VERSION/],
    ['a file', `./a.whl --hash=${hash}`, /NAME==VERSION/],
    ['an index', '--index-url https://host/simple', /options/],
    ['another file', '-r other.txt', /options/],
    ['an editable', '-e .', /options/],
    ['an option of its own', `a==1 --config-settings=x=y --hash=${hash}`, /--hash/],
    ['a wildcard', `a==1.* --hash=${hash}`, /NAME==VERSION/],
  ])('with %s is refused', (_name, text, why) => {
    expect(readPythonLock(text)).toMatchObject({ ok: false, reason: expect.stringMatching(why) });
  });

  it('never throws, and what it lets through holds nothing but names, versions and hashes', () => {
    const good = `a==1 --hash=${hash}`;
    const pieces = constantFrom(
      good,
      `B.c[x, y]==2.0+local --hash=${hash} --hash=${hash}`,
      `d==1; python_version > "3" --hash=${hash}`,
      '\n',
      '\r\n',
      '\\\n',
      '\t',
      ' ',
      '# x',
      ' # --hash',
      '-e .',
      '--pre',
      '@ file:///x',
      '--hash=',
      '\u2028',
    );
    let passed = 0;
    assert(
      property(
        oneof(
          string(),
          string().map((text) => `a==1 ${text} --hash=${hash}`),
          array(pieces, { maxLength: 8 }).map((parts) => parts.join('')),
          array(constantFrom(good, '# x', ''), { maxLength: 8 }).map((lines) => lines.join('\n')),
        ),
        (text) => {
          const read = readPythonLock(text);
          if (!read.ok) return;
          passed += read.requirements.length;
          for (const line of barePythonLock(read.requirements)
            .split('\n')
            .filter((one) => one !== '')) {
            expect(line).toMatch(/^[\w.-]+(?:\[[\w\s.,-]*\])?==[\w.!+-]+(?: --hash=sha\d+:[0-9a-f]+)+$/);
          }
        },
      ),
      { numRuns: 400 },
    );
    // Where all is refused, nothing was looked at.
    expect(passed).toBeGreaterThan(50);
  });

  // Each of these took more than a minute, in which the Kernel did nothing else, where a pattern took the square.
  it.each([
    ['spaces before a word', `a==1${' '.repeat(100_000)}x`],
    ['spaces after a name', `a${' '.repeat(100_000)}x`],
    ['spaces before an option', `a==1 ${' '.repeat(100_000)}-x`],
    ['lines that go on', `a \\\n${'\\\n'.repeat(200_000)}x`],
    ['a name of dashes', `a${'-'.repeat(100_000)}`],
    ['text before a comment', `${'x '.repeat(100_000)}#`],
  ])('is refused in no time however it is drawn out: %s', (_, text) => {
    expect(readPythonLock(text)).toMatchObject({ ok: false });
  });

  it('may break its lines and space its words as it likes', () => {
    const text = 'b  ==\t2 ;  python_version  >=  "3" \\\n   --hash=sha256:00   \\\n\t--hash=sha256:11 # why \n';
    expect(readPythonLock(text)).toEqual({
      ok: true,
      requirements: [
        { name: 'b', extras: '', version: '2', marker: 'python_version >= "3"', hashes: ['sha256:00', 'sha256:11'] },
      ],
    });
  });

  it('is read for the image’s Python, not for this machine’s', () => {
    const read = readPythonLock(
      [
        `colorama==1 ; sys_platform == 'win32' --hash=${hash}`,
        `numpy==2.4 ; python_full_version < '3.12' --hash=${hash}`,
        `numpy==2.5 ; python_full_version >= '3.12' --hash=${hash}`,
      ].join('\n'),
    );
    if (!read.ok) throw new Error(read.reason);
    expect(requirementsFor(read.requirements, here).map(({ name, version }) => `${name} ${version}`)).toEqual([
      'numpy 2.5',
    ]);
  });
});

describe('a marker', () => {
  it.each([
    ["python_version >= '3.9'", true],
    ["python_version < '3.9'", false],
    ["python_version == '3.*'", true],
    ["python_version ~= '3.11'", true],
    ["python_version ~= '3.11.0'", false],
    ["'linux' == sys_platform", true],
    ["sys_platform != 'linux' or (platform_machine == 'x86_64' and os_name == 'posix')", true],
    ["sys_platform == 'linux' and platform_machine == 'aarch64'", false],
    ["'Lin' in platform_system", true],
    ["python_version not in '3.7, 3.8'", true],
    ["extra == 'test'", false],
    ["implementation_name == 'cpython' and python_full_version > '3.13.4'", true],
  ])('%s is %s', (marker, holds) => {
    expect(markerHolds(marker, here)).toBe(holds);
  });

  it.each([
    '',
    'python_version',
    "platform_release == '6'",
    "a == 'b'",
    "(os_name == 'posix'",
    "os_name == 'posix' os_name",
    "os_name < 'posix'",
    "python_version < '3.9rc1'",
  ])('%s can’t be decided and is said to be', (marker) => {
    expect(() => markerHolds(marker, here)).toThrow(SyntaxError);
  });

  it('can’t be decided where it nests without end', () => {
    const nested = (depth: number) => `${'('.repeat(depth)}python_version > '3'${')'.repeat(depth)}`;
    expect(markerHolds(nested(50), here)).toBe(true);
    expect(() => markerHolds(nested(100_000), here)).toThrow(SyntaxError);
  });
});

describe('wheels', () => {
  it('for the C library of the image are asked for, newest first', () => {
    const glibc = wheelPlatforms({ architecture: 'amd64', libc: { kind: 'glibc', major: 2, minor: 28 }, python: null });
    expect(glibc[0]).toBe('manylinux_2_28_x86_64');
    expect(glibc).toContain('manylinux_2_17_x86_64');
    expect(glibc).toContain('manylinux2014_x86_64');
    expect(glibc).not.toContain('manylinux_2_29_x86_64');
    expect(wheelPlatforms({ architecture: 'arm64', libc: { kind: 'musl', major: 1, minor: 2 }, python: null })).toEqual(
      ['musllinux_1_2_aarch64', 'musllinux_1_1_aarch64'],
    );
    expect(wheelPlatforms({ architecture: 'amd64', libc: null, python: null })).toEqual([]);
  });

  it('bring programs that start the image’s Python', () => {
    const mended = (text: string): string | null =>
      withInterpreter(Buffer.from(text), '/deps/venv/bin/python3')?.toString() ?? null;
    expect(mended('#!/usr/bin/python3.11\nimport x\n')).toBe('#!/deps/venv/bin/python3\nimport x\n');
    expect(mended("#!/bin/sh\n'''exec' \"/a b/python3\" \"$0\" \"$@\"\n' '''\nimport x\n")).toBe(
      '#!/deps/venv/bin/python3\nimport x\n',
    );
    expect(mended('#!/bin/sh\necho hi\n')).toBeNull();
    expect(mended('\x7fELF')).toBeNull();
  });
});
