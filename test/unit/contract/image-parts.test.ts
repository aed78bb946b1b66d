// What a contract's image is made from, as far as freezing decides it: files by hash, and of a devcontainer.json the
// image's name alone.
import { existsSync } from 'node:fs';
import { readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import type { EscrowError } from '../../../src/protocol/errors.ts';
import { dependencyEnvironment, languageOf, moduleFolders } from '../../../src/server/contract/contract-image.ts';
import { freezeContract, type Frozen } from '../../../src/server/contract/freeze-contract.ts';
import { imageOf } from '../../../src/server/contract/image-parts.ts';
import { baseReference } from '../../../src/server/sandbox/image.ts';
import { imageRepository, type ImageRepository } from '../../fixtures/image-repository.ts';
import { scope } from '../../fixtures/scope.ts';

let repo: ImageRepository | undefined;
afterEach(() => repo?.dispose());

const files = { 'src/app/__init__.py': 'x = 1\n', 'a.js': '1\n' };
const contract = {
  title: 'T',
  instruction: 'I',
  writable: ['src/app/__init__.py'],
  acceptance: [{ id: 'c', argv: ['pytest'], baseline: 'fail' as const }],
};

async function freeze(
  image: object,
  more: Readonly<Record<string, string>> = {},
  fixture: 'small' | null = 'small',
): Promise<Frozen> {
  repo = await imageRepository(fixture, { ...files, ...more }, { ...contract, image });
  return freezeContract(repo.contract, scope);
}
const codes = async (work: Promise<unknown>): Promise<readonly string[]> => {
  const error = (await work.then(
    () => undefined,
    (fault: unknown) => fault,
  )) as EscrowError | undefined;
  expect(error?.code).toBe('InvalidContract');
  const { diagnostics } = (error?.details ?? { diagnostics: [] }) as {
    diagnostics: { severity: string; code: string }[];
  };
  return diagnostics.filter(({ severity }) => severity === 'error').map(({ code }) => code);
};

describe('packages of a contract', () => {
  it('are lock files and manifests by hash, and say where packages are found', async () => {
    const frozen = await freeze({ dependencies: { npm: 'package-lock.json', python: 'requirements.lock' } });
    const { imageDependencies } = frozen.contract;
    expect(imageDependencies?.npm?.manifests.map((file) => file.path)).toEqual([
      'package.json',
      'packages/greet/package.json',
    ]);
    expect(imageDependencies?.python?.sources).toEqual(['.', 'src']);
    expect([...frozen.imageBytes.keys()].toSorted()).toEqual([
      'package-lock.json',
      'package.json',
      'packages/greet/package.json',
      'requirements.lock',
    ]);
    expect(moduleFolders(frozen.contract)).toEqual(['node_modules', 'packages/greet/node_modules']);
    expect(dependencyEnvironment(frozen.contract)).toEqual({ PYTHONPATH: '/workspace:/workspace/src' });
    expect(languageOf(frozen.contract)).toBe('python');
  });

  it('leave the digest of a contract without them as it was', async () => {
    const plain = await freeze({});
    expect('imageDependencies' in plain.contract).toBe(false);
    expect('imageSteps' in plain.contract).toBe(false);
    expect(dependencyEnvironment(plain.contract)).toEqual({});
    expect(moduleFolders(plain.contract)).toEqual([]);
  });

  it('with another lock are another contract', async () => {
    const image = { dependencies: { python: 'requirements.lock' } };
    const first = await freeze(image);
    const lock = path.join(first.root, 'requirements.lock');
    const text = await readFile(lock, 'utf8');
    // The snapshot holds the file as well; here only the image part is looked at.
    await writeFile(lock, `${text}\n`);
    const second = await freezeContract(path.join(first.root, 'task.contract.jsonc'), scope);
    expect(second.contract.imageDependencies?.python?.lock.sha256).not.toBe(
      first.contract.imageDependencies?.python?.lock.sha256,
    );
    expect(second.digest).not.toBe(first.digest);
  });

  it.each([
    ['that are not there', { npm: 'web/package-lock.json' }, {}, ['unknown-path', 'unknown-path']],
    ['of another tool', { npm: 'yarn.lock' }, { 'yarn.lock': '' }, ['bad-lock']],
    [
      'from git',
      { npm: 'package-lock.json' },
      {
        'package-lock.json': JSON.stringify({
          lockfileVersion: 3,
          packages: { 'node_modules/a': { version: '1.0.0', resolved: 'git+https://h/a' } },
        }),
      },
      ['bad-lock'],
    ],
    ['without hashes', { python: 'r.txt' }, { 'r.txt': 'pytest==9.2.0\n' }, ['bad-lock']],
    ['with an index of their own', { python: 'r.txt' }, { 'r.txt': '--index-url https://h/simple\n' }, ['bad-lock']],
    ['beside tracked ones', { npm: 'package-lock.json' }, { 'node_modules/a/index.js': '' }, ['packages-overlap']],
    ['of a manifest that is none', { npm: 'package-lock.json' }, { 'package.json': '[]' }, ['bad-manifest']],
    ['found in a folder above', { python: { lock: 'requirements.lock', sources: ['../x'] } }, {}, ['unsafe-path']],
  ])('%s are refused', async (_name, dependencies, more, expected) => {
    expect(await codes(freeze({ dependencies }, more as Record<string, string>))).toEqual(expected);
  });
});

describe('a devcontainer.json', () => {
  const hostile = {
    // Comments are allowed there.
    image: 'mcr.example/devcontainers/python:3.13',
    initializeCommand: 'touch canary',
    onCreateCommand: ['touch', 'canary'],
    postCreateCommand: 'touch canary',
    mounts: ['source=/,target=/host,type=bind'],
    features: { 'ghcr.example/features/docker-in-docker:2': {} },
    runArgs: ['--privileged', '--network=host'],
    containerEnv: { LD_PRELOAD: '/evil.so' },
    remoteUser: 'root',
    workspaceMount: 'source=/,target=/workspace,type=bind',
  };

  it('gives the name of its image and nothing else', async () => {
    const text = `// hello\n${JSON.stringify(hostile).replace(/}$/, ',}')}`;
    const frozen = await freeze(
      { base: '.devcontainer/devcontainer.json' },
      { '.devcontainer/devcontainer.json': text },
    );
    expect(frozen.contract.imageBase).toBe('mcr.example/devcontainers/python:3.13');
    expect(JSON.stringify(frozen.contract)).not.toMatch(/privileged|initializeCommand|LD_PRELOAD|docker-in-docker/);
    expect(frozen.imageBytes.size).toBe(0);
    expect(existsSync(path.join(frozen.root, 'canary'))).toBe(false);
  });

  it.each([
    ['names none', { build: { dockerfile: 'Dockerfile' } }],
    ['has a variable in it', { image: '${localEnv:IMAGE}' }],
    ['has an option in it', { image: '--privileged' }],
    ['is no text', { image: { name: 'x' } }],
    ['is no object', 7],
  ])('whose image %s is refused', async (_name, value) => {
    const work = freeze({ base: '.devcontainer.json' }, { '.devcontainer.json': JSON.stringify(value) }, null);
    expect(await codes(work)).toEqual(['no-image']);
  });
  it('that is nested without end is refused', async () => {
    const deep = `{"customizations": ${'['.repeat(200_000)}${']'.repeat(200_000)}, "image": "python:3.13"}`;
    expect(await codes(freeze({ base: '.devcontainer.json' }, { '.devcontainer.json': deep }, null))).toEqual([
      'no-image',
    ]);
  });

  it('is read without running or following anything', () => {
    for (const text of ['', '{', 'null', '[]', '{"image": 1}']) expect(imageOf(text)).toBeNull();
    expect(imageOf('{"image": "a/b:c"}')).toBe('a/b:c');
  });
});

it('a base that is no name of an image is refused', async () => {
  expect(await codes(freeze({ base: 'a b' }))).toEqual(['bad-image']);
});

it.each([
  [['go', 'test', './...'], 'go', 'golang:1-trixie'],
  [['cargo', 'test'], 'rust', 'rust:1-slim-trixie'],
  [['python3', '-m', 'unittest'], 'python', null],
  [['node_modules/.bin/vitest', 'run'], 'node', null],
  [['make', 'test'], null, null],
] as const)('checks that begin with %j want the base of their language', async (argv, language, base) => {
  repo = await imageRepository(null, files, {
    ...contract,
    acceptance: [{ id: 'c', argv: [...argv], baseline: 'fail' }],
  });
  const frozen = await freezeContract(repo.contract, scope);
  expect(languageOf(frozen.contract)).toBe(language);
  // Null: the default base, which has Python and Node.
  expect(baseReference({ base: null, language })).toBe(base);
  expect(baseReference({ base: 'own:1', language })).toBe('own:1');
});
