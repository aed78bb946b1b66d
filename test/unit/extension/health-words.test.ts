import { expect, test } from 'vitest';
import { healthWords, type HealthPart } from '../../../src/extension/trees/health-words.ts';
import { errorCodes } from '../../../src/protocol/errors.ts';
import { WallTime } from '../../../src/protocol/primitives.ts';
import type { EngineInfo, EngineVersion } from '../../../src/server/sandbox/engine-connection.ts';
import { EngineFault } from '../../../src/server/sandbox/engine-fault.ts';
import { findingsOf, preflightOf } from '../../../src/server/sandbox/preflight.ts';
import { words } from '../../fixtures/window-state.ts';

const said = (part: HealthPart, code: string) =>
  healthWords(
    part,
    {
      state: 'unavailable',
      code,
      detail: 'connect ENOENT',
      next: 'Run `escrow doctor`.',
      observedAt: WallTime.parse(1),
    },
    words,
  );

/** Every code that the preflight of a container engine can end with. */
async function engineCodes(): Promise<readonly string[]> {
  const worst: EngineInfo = {
    cpus: 1,
    memoryBytes: 0,
    cgroupVersion: '',
    securityOptions: [],
    initBinary: '',
    storageRoot: '/var/lib/docker',
    swapLimit: false,
    memoryLimit: false,
    cpuLimit: false,
    pidsLimit: false,
    rootless: true,
  };
  const version: EngineVersion = { flavour: 'docker', name: 'Docker', version: '1', api: '1', architecture: 'amd64' };
  const kinds = ['unreachable', 'permission', 'timeout', 'unsupported', 'refused'] as const;
  const unreachable = await Promise.all(
    kinds.map(async (kind) => {
      const found = await preflightOf(
        new EngineFault(kind, 'x'),
        () => WallTime.parse(1),
        () => false,
      );
      return found.findings.map(({ code }) => code);
    }),
  );
  const bad = findingsOf(version, worst, () => false).filter(({ ok }) => !ok);
  return [...unreachable.flat(), ...bad.map(({ code }) => code)];
}

test('each thing that an engine can lack has words of the window, and a step', async () => {
  const codes = await engineCodes();
  expect(codes.length).toBeGreaterThan(10);
  for (const code of codes) {
    expect(said('engine', code).says, code).not.toMatch(/ENOENT|not as it should be|^$/);
    expect(said('engine', code).next?.label, code).not.toMatch(/escrow doctor|npm run|^$/);
  }
});

test('a part that could not be looked at for a coded error says that error in the words of the window', () => {
  for (const part of ['engine', 'image', 'inference', 'storage'] as const) {
    for (const code of Object.keys(errorCodes)) {
      expect(said(part, code).says, code).not.toMatch(/ENOENT|^$/);
      expect(said(part, code).next?.label ?? '', code).not.toContain('escrow doctor');
    }
  }
});

test('a code of a newer Kernel is not passed on as it is', () => {
  expect(said('engine', 'of_tomorrow')).toMatchObject({ says: 'not as it should be' });
});
