import { sizeWords } from '../images/size-words.ts';
import { visible } from '../visible-text.ts';
import type { Localize } from './tree-node.ts';

/** A limit of a sandbox, by its name in the record; one of a newer Kernel as it is. */
export function limitWords(name: string, t: Localize): string {
  const [, kind = name, of = ''] = /^(ulimit|tmpfs) (.+)$/.exec(name) ?? [];
  switch (kind) {
    case 'ulimit':
      return t('ulimit {0}', visible(of, 80));
    case 'tmpfs':
      return t('Files in {0}', visible(of, 80));
    case 'memory':
      return t('Memory');
    case 'swap':
      return t('Swap');
    case 'pids':
      return t('Processes');
    case 'cpus':
      return t('Processors');
    case 'oom-killer':
      return t('End of who takes too much memory');
    case 'root file system':
      return t('Root file system');
    case 'other writable mounts':
      return t('Other folders that can be written');
    case 'devices':
      return t('Devices');
    case 'capabilities of the supervisor':
      return t('Capabilities of the supervisor');
    case 'capabilities of commands':
      return t('Capabilities of commands');
    case 'identity of commands':
      return t('User of commands');
    case 'supervisor survives first':
      return t('The supervisor is ended last');
    case 'no new privileges':
      return t('No new privileges');
    case 'seccomp':
      return t('System call filter');
    case 'system calls':
      return t('System calls, tried');
    case 'privileged':
      return t('Privileged');
    case 'process namespace':
      return t('Process namespace');
    case 'IPC namespace':
      return t('IPC namespace');
    case 'init':
      return t('Init program');
    case 'engine log':
      return t('Log of the container engine');
    case 'restart':
      return t('Started again by the engine');
    case 'network':
      return t('Network');
    case 'environment':
      return t('Environment');
    default:
      return visible(name, 80);
  }
}

/** What a limit is set to, in short; the record's own text where it is no single word or size. */
export function limitValueWords(name: string, value: string, t: Localize): string {
  if (name === 'memory' && /^\d+$/.test(value)) return sizeWords(Number(value));
  const [, bytes, more] = /^(\d+) bytes(, .*)?$/.exec(value) ?? [];
  if (bytes !== undefined) return `${sizeWords(Number(bytes))}${visible(more ?? '', 120)}`;
  switch (value) {
    case 'none':
      return t('none');
    case 'on':
      return t('on');
    case 'off':
      return t('off');
    case 'no':
      return t('no');
    case 'yes':
      return t('yes');
    case 'own':
      return t('its own');
    case 'private':
      return t('private');
    case 'shared':
      return t('shared');
    case 'read-only':
      return t('read-only');
    case 'writable':
      return t('writable');
    case 'filter':
      return t('in place');
    case 'the fixed list':
      return t('the fixed list');
    case 'not set':
    case 'not stated':
      return t('not set');
    case 'not mounted':
      return t('not there');
    default:
      return visible(value, 160);
  }
}
