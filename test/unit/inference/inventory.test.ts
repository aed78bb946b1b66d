import { describe, expect, test } from 'vitest';
import { inventoryChanges, type Inventory } from '../../../src/server/inference/inventory.ts';

const base: Inventory = {
  host: 'http://127.0.0.1:11434',
  version: '0.33.1',
  models: [
    { name: 'qwen3:4b', digest: 'a' },
    { name: 'llama3:8b', digest: 'b' },
  ],
  loaded: [],
  store: { path: '/models', files: [{ name: 'sha256-1', size: 10 }] },
};

describe('what changed at an engine', () => {
  test('nothing, where nothing did', () => {
    expect(inventoryChanges(base, structuredClone(base))).toEqual([]);
  });

  test('each difference by name, with what it was and is', () => {
    const after: Inventory = {
      ...base,
      version: '0.33.2',
      models: [
        { name: 'qwen3:4b', digest: 'z' },
        { name: 'phi4:14b', digest: 'c' },
      ],
      loaded: [{ name: 'qwen3:4b', digest: 'z', context: 16_384 }],
      store: { path: '/models', files: [{ name: 'sha256-2', size: 20 }] },
    };
    expect(inventoryChanges(base, after)).toEqual([
      { what: 'engine_version', name: base.host, before: '0.33.1', after: '0.33.2' },
      { what: 'model_changed', name: 'qwen3:4b', before: 'a', after: 'z' },
      { what: 'model_added', name: 'phi4:14b', before: null, after: 'c' },
      { what: 'model_removed', name: 'llama3:8b', before: 'b', after: null },
      { what: 'loaded', name: 'qwen3:4b', before: null, after: 'z context 16384' },
      { what: 'file_added', name: 'sha256-2', before: null, after: '20 bytes' },
      { what: 'file_removed', name: 'sha256-1', before: '10 bytes', after: null },
    ]);
    expect(inventoryChanges(after, base).map((c) => c.what)).toContain('unloaded');
  });

  test('a store that could not be read is not a store without files', () => {
    expect(inventoryChanges(base, { ...base, store: { path: '/models', files: null } })).toEqual([]);
    expect(inventoryChanges(base, { ...base, store: null })).toEqual([]);
  });

  test('a list that nobody reads is cut', () => {
    const many = Array.from({ length: 5000 }, (_, n) => ({ name: `m${n}`, digest: 'x' }));
    expect(inventoryChanges(base, { ...base, models: many }).length).toBe(200);
  });
});
