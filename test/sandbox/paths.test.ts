// Paths that mean something else than they seem to, and files that change what they are, against the executor itself:
// the Kernel's own checks are left out, so that what is shown is the second line.
import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { FromExecutor } from '../../src/protocol/executor-answers.ts';
import { sha256 } from '../../src/protocol/hash.ts';
import type { Sandbox } from '../../src/server/sandbox/port.ts';
import { containerLabels } from '../../src/server/sandbox/labels.ts';
import { bounded, createOptions } from '../../src/server/sandbox/profile.ts';
import { collect } from '../fixtures/collected.ts';
import { patienceMs } from '../fixtures/kernel.ts';
import {
  file,
  pathOf,
  rootProgram,
  sandboxBench,
  textOf,
  type SandboxBench,
  type SpecParts,
} from '../fixtures/sandbox.ts';
import { supervisorClient, type SupervisorClient } from '../fixtures/supervisor-client.ts';
import { unless } from '../fixtures/left-out.ts';

let bench: SandboxBench;
beforeAll(async () => {
  bench = await sandboxBench();
});
afterAll(() => bench.dispose());

const path = pathOf('src/a.py');
const parts: SpecParts = {
  files: [file('src/a.py', 'old\n'), file('src/deep/b.py', 'deep\n')],
  readable: [pathOf('src/deep/b.py')],
  writable: [path],
};

/** Runs a Node program as root inside. */
const asRoot = (engineId: string, code: string): Promise<string> => rootProgram(bench.engine, engineId, code);

/** Does something as root inside over and over, until the function that it gives is called. */
function againAndAgain(engineId: string, code: string): () => Promise<void> {
  const stop = '/exchange/stop';
  const loop = `let n = 0; while (++n % 50 !== 0 || !fs.existsSync('${stop}')) { ${code} }`;
  const running = asRoot(engineId, loop);
  running.catch(() => undefined);
  return async () => {
    await asRoot(engineId, `fs.writeFileSync('${stop}', '')`);
    await running;
  };
}

/**
 * Reads the file so often that what may be seen is seen, and until all of `wanted` was: how often was what? On a slow
 * machine less often than `least`, and for as long as a test waits for anything.
 */
async function readings(
  sandbox: Sandbox,
  least: number,
  told: (bytes: Uint8Array) => string,
  wanted: (seen: ReadonlyMap<string, number>) => boolean,
): Promise<ReadonlyMap<string, number>> {
  const seen = new Map<string, number>();
  const begun = performance.now();
  const lasted = (ms: number): boolean => performance.now() - begun > ms;
  for (let n = 0; !wanted(seen) || (n < least && !lasted(patienceMs / 3)); n += 1) {
    if (lasted(patienceMs)) throw new Error(`in ${n} readings: ${JSON.stringify([...seen])}`);
    const what = await sandbox.read(path, 'agent').then(
      ({ bytes }) => told(bytes),
      ({ code }: { code?: string }) => `refused: ${code ?? 'error'}`,
    );
    seen.set(what, (seen.get(what) ?? 0) + 1);
  }
  return seen;
}

type Asking = SupervisorClient & { ask(frame: object, bytes?: string): Promise<FromExecutor> };

/** Says hello, and asks one thing after the other. */
async function asking(client: SupervisorClient, epoch: number): Promise<Asking> {
  const key = randomBytes(16).toString('hex');
  client.say({ e: epoch, k: key, t: 'hello' });
  await client.until(({ t, e }) => t === 'welcome' && e === epoch);
  let id = 0;
  return Object.assign(client, {
    ask: async (frame: object, bytes?: string): Promise<FromExecutor> => {
      id += 1;
      const mine = id;
      const refusedBefore = client.frames.filter(({ t }) => t === 'refused').length;
      client.say({ e: epoch, k: key, id: mine, ...frame }, bytes);
      return client.until(
        (one) =>
          ((one.t === 'done' || one.t === 'fail') && one.id === mine && one.e === epoch) ||
          (one.t === 'refused' && client.frames.filter(({ t }) => t === 'refused').length > refusedBefore),
      );
    },
  });
}

/** The Kernel itself as a client that checks nothing. */
async function bareKernel(sandbox: Sandbox): Promise<Asking> {
  sandbox.detach();
  return asking(await supervisorClient(bench.engine, sandbox.engineId), 2);
}

/** The same, of a supervisor that has no policy and no files yet. */
async function firstKernel(): Promise<Asking> {
  const { name, owner } = bench.spec();
  const labels = containerLabels({ ...bench.spec(), owner, homeId: bench.homeId, instanceId: 'test' });
  const nonce = randomBytes(16).toString('hex');
  const { cpus: engineCpus } = await bench.engine.info();
  const identity = { name, image: bench.image.digest, labels, nonce, engineCpus };
  const id = await bench.engine.create(createOptions(bounded, identity));
  const client = await supervisorClient(bench.engine, id);
  await bench.engine.start(id);
  return asking(client, 1);
}

const hostile: Record<string, readonly string[]> = {
  '[35] out of the workspace or none': [
    '..',
    '../etc/passwd',
    'src/../../etc/passwd',
    '/etc/passwd',
    '',
    '.',
    '%s%n',
    'src//a.py',
    'a/'.repeat(2048),
  ],
  '[36] with characters that are not shown': [
    'src/a.py\0',
    'src/\n.py',
    'src/\u202Eyp.a',
    'src/\u0007',
    'src/a\u200B.py',
    '\uD800.py',
  ],
  '[37] that some system takes for another': [
    'src/a.py.',
    'src/a.py ',
    'src/CON',
    'src/nul.txt',
    'SRC/A.PY',
    'src/A.py',
    'e\u0301.py',
    'src\\a.py',
    'C:/x',
    '.git/config',
    'GIT~1/x',
  ],
};

describe('the executor', () => {
  it('[35=] [36=] [37=] serves a declared path to a client that checks nothing (control)', async () => {
    const client = await bareKernel(await bench.provision(parts));
    try {
      expect(await client.ask({ t: 'read', path, by: 'agent' })).toMatchObject({ t: 'done' });
    } finally {
      client.leave();
    }
  });
  it.each(Object.entries(hostile))('%s: reads and writes no such path', async (_, paths) => {
    const client = await bareKernel(await bench.provision(parts));
    try {
      for (const one of paths) {
        for (const by of ['agent', 'person']) {
          expect([one, (await client.ask({ t: 'read', path: one, by })).t]).toEqual([
            one,
            expect.stringMatching(/^(?:fail|refused)$/),
          ]);
        }
        const bytes = { size: 1, sha256: sha256('x') };
        const write = client.ask({ t: 'write', path: one, expected: null, ...bytes });
        const refused = await Promise.race([write, client.ask({ t: 'manifest' }).then(() => write)]);
        expect([one, refused.t]).toEqual([one, expect.stringMatching(/^(?:fail|refused)$/)]);
      }
    } finally {
      client.leave();
    }
  });

  /** Good names as such; two of them are only not those that are declared. */
  const good = new Set(['%s%n', 'SRC/A.PY', 'src/A.py']);
  // What Podman would have to be asked for is made by the service.
  const docker = process.env['ESCROW_TEST_ENGINE'] !== 'podman';
  it.runIf(docker).each(Object.entries(hostile))(
    `%s: takes no policy that declares such a path, and places no such file${unless(docker, 'attaches to a container of its own making, Docker only')}`,
    async (_, all) => {
      const paths = all.filter((one) => !good.has(one));
      const client = await firstKernel();
      const empty = { readable: [], writable: [], scratch: [], commands: [] };
      const open = (policy: object) => {
        const json = JSON.stringify(policy);
        const size = Buffer.byteLength(json);
        return client.ask({ t: 'open', size, sha256: sha256(json), p: size }, json);
      };
      const place = (one: string) => client.ask({ t: 'place', path: one, mode: 0o644, size: 0, sha256: sha256('') });
      try {
        for (const one of paths) {
          for (const kind of ['readable', 'writable', 'scratch']) {
            expect([one, kind, await open({ ...empty, [kind]: [one] })]).toEqual([
              one,
              kind,
              expect.objectContaining({ t: 'fail', code: 'invalid' }),
            ]);
          }
        }
        // Two files that are one on another system, of which one may be written.
        expect(await open({ ...empty, readable: ['SRC/A.PY'], writable: ['src/a.py'] })).toMatchObject({ t: 'fail' });
        // Control: what names good paths is taken, and a good path is placed.
        expect(await open({ ...empty, writable: ['src/a.py'] })).toMatchObject({ t: 'done' });
        expect(await place('src/a.py')).toMatchObject({ t: 'done' });
        for (const one of paths) {
          expect([one, (await place(one)).t]).toEqual([one, expect.stringMatching(/^(?:fail|refused)$/)]);
        }
        expect(await client.ask({ t: 'seal' })).toMatchObject({ t: 'done', result: { files: 1 } });
      } finally {
        client.leave();
      }
    },
  );

  it('[38+] follows no link, however fast a file and its folder are swapped for one', async () => {
    const sandbox = await bench.provision(parts);
    await asRoot(
      sandbox.engineId,
      `fs.mkdirSync('/exchange/real'); fs.writeFileSync('/exchange/real/a.py', 'outside')`,
    );
    const stop = againAndAgain(
      sandbox.engineId,
      `  try { fs.renameSync('/workspace/src', '/workspace/was'); fs.symlinkSync('/exchange/real', '/workspace/src'); fs.unlinkSync('/workspace/src'); fs.renameSync('/workspace/was', '/workspace/src'); } catch {}
         try { fs.renameSync('/workspace/src/a.py', '/workspace/src/w'); fs.symlinkSync('/exchange/real/a.py', '/workspace/src/a.py'); fs.unlinkSync('/workspace/src/a.py'); fs.renameSync('/workspace/src/w', '/workspace/src/a.py'); } catch {}`,
    );
    // Control: the swapping is seen, and the file is too.
    const seen = await readings(sandbox, 1_000, textOf, (kinds) => kinds.has('old\n') && kinds.size > 1);
    await stop();
    expect(seen.get('outside')).toBeUndefined();
    sandbox.detach();
  });

  it('[39] [43] reads and writes through no link that is there, and no file of another owner', async () => {
    const sandbox = await bench.provision(parts);
    const before = sha256('old\n');
    await asRoot(
      sandbox.engineId,
      `fs.writeFileSync('/exchange/t', 'outside'); fs.unlinkSync('/workspace/src/a.py'); fs.symlinkSync('/exchange/t', '/workspace/src/a.py')`,
    );
    await expect(sandbox.read(path, 'agent')).rejects.toMatchObject({ code: 'invalid' });
    await expect(sandbox.write(path, Buffer.from('x'), sha256('outside'))).rejects.toMatchObject({ code: 'invalid' });
    await asRoot(
      sandbox.engineId,
      `fs.unlinkSync('/workspace/src/a.py'); fs.writeFileSync('/workspace/other', 'old\\n'); fs.linkSync('/workspace/other', '/workspace/src/a.py')`,
    );
    await expect(sandbox.read(path, 'agent')).rejects.toMatchObject({ code: 'invalid' });
    await asRoot(
      sandbox.engineId,
      `fs.unlinkSync('/workspace/other'); fs.chownSync('/workspace/src/a.py', 10001, 10001)`,
    );
    await expect(sandbox.write(path, Buffer.from('x'), before)).rejects.toMatchObject({ code: 'invalid' });
    // Control: the same file, of root and with one name, is served.
    await asRoot(sandbox.engineId, `fs.chownSync('/workspace/src/a.py', 0, 0)`);
    expect(textOf((await sandbox.read(path, 'agent')).bytes)).toBe('old\n');
    await asRoot(sandbox.engineId, `fs.writeFileSync('/workspace/src/a.py', 'evil\\n')`);
    expect(await collect(sandbox)).toMatchObject({ equalsAudit: false });
    sandbox.detach();
  });
  it('[39=] [43=] serves the file before it was swapped (control)', async () => {
    const sandbox = await bench.provision(parts);
    await sandbox.write(path, Buffer.from('new\n'), sha256('old\n'));
    expect(textOf((await sandbox.read(path, 'agent')).bytes)).toBe('new\n');
    sandbox.detach();
  });

  it('[40+] hangs at no pipe, socket, device or file of /proc in the place of a declared one', async () => {
    // The same program's reader in a plain container, as root: there, such files can be made. It takes what started it for
    // a supervisor, and finds that it holds.
    const { output, exitCode } = await bench.unprotected(
      [
        'sh',
        '-c',
        `cd /workspace && mkfifo fifo && ln -s /proc/self/environ proc && ln -s /dev/zero zero && mknod device c 1 5; echo plain > plain;
         : > /exchange/audit.ndjson; : > /exchange/held
         trap "" USR2; timeout 20 /opt/escrow/node /opt/escrow/executor.cjs read-out file:fifo file:proc file:zero file:device file:plain; echo "ended $?"`,
      ],
      { CapAdd: ['MKNOD'] },
      { user: '0:0', image: bench.image.digest },
    );
    expect([exitCode, output.includes('ended 0')]).toEqual([0, true]);
    const lines = output
      .split('\n')
      .filter((line) => line.startsWith('{'))
      .map((line) => JSON.parse(line) as Record<string, { path?: string } | string[] | undefined>);
    const pathsOf = (name: string) =>
      lines.map((line) => line[name]).flatMap((one) => (one !== undefined && 'path' in one ? [one.path] : []));
    expect(pathsOf('missing')).toEqual(['fifo', 'proc', 'zero', 'device']);
    expect(pathsOf('file')).toEqual(['plain']);
    expect((lines.find(({ odd }) => odd !== undefined)?.['odd'] as string[] | undefined)?.toSorted()).toEqual([
      'device',
      'fifo',
      'proc',
      'zero',
    ]);
  });

  it('[41+] gives a file that changes while it is read whole or not at all', async () => {
    const a = 'a'.repeat(2_000_000);
    const b = 'b'.repeat(1_000_000);
    const sandbox = await bench.provision({ ...parts, files: [file('src/a.py', a)] });
    const stop = againAndAgain(
      sandbox.engineId,
      `for (const t of ['b'.repeat(1000000), 'a'.repeat(2000000)]) { fs.writeFileSync('/workspace/n', t); fs.renameSync('/workspace/n', '/workspace/src/a.py'); }`,
    );
    const told = (bytes: Uint8Array): string => (textOf(bytes) === a ? 'a' : textOf(bytes) === b ? 'b' : 'mixed');
    // Control: both are seen.
    const seen = await readings(sandbox, 60, told, (kinds) => kinds.has('a') && kinds.has('b'));
    await stop();
    expect(seen.has('mixed')).toBe(false);
    sandbox.detach();
  });

  it('[41] nor the part of one that is written to while it is read', async () => {
    const sandbox = await bench.provision({ ...parts, files: [file('src/a.py', 'a'.repeat(8_000_000))] });
    // The same file all the time, now long and now short.
    const stop = againAndAgain(
      sandbox.engineId,
      `const f = fs.openSync('/workspace/src/a.py', 'r+'); fs.ftruncateSync(f, 4000000); fs.writeSync(f, Buffer.alloc(4000000, 97), 0, 4000000, 4000000); fs.closeSync(f);`,
    );
    const told = (bytes: Uint8Array): string => (Buffer.from(bytes).every((byte) => byte === 97) ? 'a' : 'mixed');
    // Control: it did change in the middle of readings.
    const seen = await readings(sandbox, 40, told, (kinds) => kinds.has('refused: conflict'));
    await stop();
    expect([...seen.keys()].filter((kind) => kind !== 'a')).toEqual(['refused: conflict']);
    // And the channel goes on.
    expect((await sandbox.read(path, 'agent')).bytes).toHaveLength(8_000_000);
    sandbox.detach();
  });
});
