// Podman without root on control groups v1 takes every limit and leaves it out without a word: what is read back from
// inside stops the attempt. The real engine, as a user of its own.
import { readFile } from 'node:fs/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { rootlessPodman, rootlessPossible, type PodmanService } from '../fixtures/podman.ts';
import { file, sandboxBench, type SandboxBench } from '../fixtures/sandbox.ts';
import { fullRun, leftOut, unless } from '../fixtures/left-out.ts';

const unified = (await readFile('/proc/mounts', 'utf8')).includes('cgroup2 /sys/fs/cgroup ');

const possible = !unified && (await rootlessPossible());

describe.runIf(fullRun && possible)(
  `Podman without root, on control groups v1${leftOut.fullRun}${unless(possible, 'needs control groups v1, Podman and another user')}`,
  () => {
    let podman: PodmanService;
    let bench: SandboxBench;
    beforeAll(async () => {
      podman = await rootlessPodman();
      process.env['DOCKER_HOST'] = podman.address;
      bench = await sandboxBench();
    });
    afterAll(async () => {
      await bench?.dispose();
      await podman?.close();
    });

    it('[51] is told by the preflight, with the mend', async () => {
      const { health, findings } = await bench.service.preflight();
      expect(health).toMatchObject({
        state: 'unavailable',
        code: 'rootless',
        next: expect.stringContaining('unified'),
      });
      expect(findings.filter(({ ok }) => !ok).map(({ code }) => code)).toEqual([
        'rootless',
        'memory_limit',
        'swap_limit',
        'cpu_limit',
        'pids_limit',
      ]);
    });

    it('[51] takes limits and leaves them out: the attempt is stopped before a file is placed, each limit by its name', async () => {
      const facts: string[] = [];
      const spec = bench.spec({ files: [file('secret.txt', 'x')] });
      const refused = await bench.service
        .provision(spec, async ({ kind }) => {
          facts.push(kind);
        })
        .catch((error: unknown) => error);
      expect(refused).toMatchObject({ code: 'limit-not-in-force' });
      const names = [...String(refused).matchAll(/(?<=: |; )([a-z ]+) \(/g)].map(([, name]) => name);
      expect(names).toEqual(
        expect.arrayContaining(['memory', 'swap', 'pids', 'cpus', 'ulimit nofile', 'ulimit fsize']),
      );
      expect(names).not.toContain('other writable mounts');
      expect(facts).toEqual(['created', 'started', 'attached', 'limits']);
    });
  },
);
