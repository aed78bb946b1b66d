import { expect, test } from 'vitest';
import { imageListText, pruneText, recordText } from '../../../src/extension/images/images-text.ts';
import type { ImageRecord, ImageView } from '../../../src/protocol/images.ts';
import { WallTime } from '../../../src/protocol/primitives.ts';
import { sha256 } from '../../../src/protocol/hash.ts';
import { words } from '../../fixtures/window-state.ts';

const mebibyte = 1024 ** 2;
const image = (change: Partial<ImageView>): ImageView => ({
  id: `sha256:${sha256('image')}`,
  tags: ['escrow-sandbox:x'],
  kind: 'prepared',
  owner: 'this-home',
  createdAt: WallTime.parse(5),
  sizeBytes: 500 * mebibyte,
  ownBytes: 2 * mebibyte,
  base: null,
  executor: null,
  dependencies: null,
  kept: null,
  ...change,
});

test('a list says what each image takes, why it would be kept, what all take together, and what no engine tells', () => {
  const images = [
    image({ kept: 'session' }),
    image({ id: 'sha256:f', ownBytes: null, owner: 'set-up', kept: 'not-ours' }),
  ];
  const text = imageListText(
    { images, totalBytes: 502 * mebibyte, unknown: ['engine_overhead', 'layer_sizes'] },
    words,
  );
  expect(text).toContain('Together: 502.0 MiB, each layer counted once');
  expect(text).toContain('Not told by the engine: what the storage of the engine takes beside the layers, the sizes');
  expect(text).toContain('500.0 MiB with all below it; 2.0 MiB that no other image has');
  expect(text).toContain('what it alone holds is not told');
  expect(text).toContain('Kept by a prune: an open session uses it');
  expect(text).toContain('made by npm run setup');
});

test('a preview is not told as done; what could not be removed says why', () => {
  const prune = { removed: [image({})], kept: [], failed: [], freedBytes: mebibyte, unknown: [] };
  expect(pruneText({ ...prune, done: false }, words)).toMatch(/would be removed[\s\S]*Would be freed: 1\.0 MiB/);
  const done = pruneText({ ...prune, done: true, failed: [{ id: 'sha256:abc', reason: 'in use\u202e' }] }, words);
  expect(done).toMatch(/were removed[\s\S]*Could not be removed\n {2}abc {2}in use⟨U\+202E⟩/);
  expect(done).not.toContain('would');
});

test('a record says what was measured, and nothing where nothing was', () => {
  const record: ImageRecord = {
    image: 'sha256:1',
    reference: 'escrow-sandbox:x',
    plan: sha256('plan'),
    base: { reference: 'b\u202e', digest: 'sha256:2' },
    node: 'v24',
    executor: sha256('executor'),
    dependencies: null,
    approval: { by: 'Ada', channel: 'window', standing: true, at: WallTime.parse(1) },
    steps: [
      {
        kind: 'flatten',
        made: false,
        ms: 0,
        artefacts: null,
        downloadedBytes: null,
        files: null,
        bytes: null,
        tree: null,
      },
      {
        kind: 'npm',
        made: true,
        ms: 1500,
        artefacts: 3,
        downloadedBytes: mebibyte,
        files: 9,
        bytes: 2 * mebibyte,
        tree: sha256('tree'),
      },
    ],
    sizeBytes: mebibyte,
    layers: ['a', 'b'],
    ms: 2000,
  };
  const text = recordText(record, words);
  expect(text).toContain('b⟨U+202E⟩');
  expect(text).toContain('Approved by Ada (window), now and later');
  expect(text).toMatch(/1\. The base in one layer: was there already\n2\. npm packages: 1\.5 s\n {3}archives: 3\n/);
  expect(text).toContain(`fetched: 1.0 MiB`);
});
