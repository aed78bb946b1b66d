// A sandbox image from the plan to its record, in the window: what is asked, what a no and a cancellation leave, what
// was made, and taking it away again.
import { randomBytes } from 'node:crypto';
import { readdir, readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { expect, test } from 'vitest';
import type { KernelConnection } from '../../src/client/kernel-connection.ts';
import { engineHere } from '../../scripts/lib/engine-here.ts';
import { root } from '../../scripts/lib/root.ts';
import { knownHome } from '../fixtures/known-home.ts';
import { startJourney, type Journey } from './harness/journey.ts';
import { pictures } from './harness/pictures.ts';
import { until } from './harness/until.ts';

const wide = { width: 1100, height: 760 };
const narrow = { width: 560, height: 620 };

const check = (id: string, baseline: 'fail' | 'pass') => ({
  id,
  argv: ['python3', '-m', 'unittest', '-v', id === 'utc' ? 'tests.test_timestamp' : 'tests.test_usage'],
  baseline,
  env: { TZ: 'EET-2' },
});

/** A contract file of the repository whose image is made in this way. */
async function contract(journey: Journey, name: string, image: unknown): Promise<void> {
  const task = {
    title: `Image of ${name}`,
    instruction: 'Interpret timezone-free timestamps as UTC.',
    writable: ['src/usage.py'],
    acceptance: [check('utc', 'fail'), check('rest', 'pass')],
    image,
  };
  await writeFile(path.join(journey.repo, `${name}.contract.jsonc`), JSON.stringify(task, null, 2));
}

/** Does work with a client of the journey's Kernel; the images that were made meanwhile are gone afterwards. */
async function withoutImagesAfter(journey: Journey, work: (kernel: KernelConnection) => Promise<void>): Promise<void> {
  const kernel = await journey.observe();
  try {
    await work(kernel);
  } finally {
    await kernel.call('image/prune', { preview: false, all: true });
  }
}

interface Left {
  readonly images: readonly string[];
  readonly containers: readonly string[];
  readonly temporary: readonly string[];
}
const nothing: Left = { images: [], containers: [], temporary: [] };

/** A journey whose Kernel's traces in the engine are known by the id of its state folder. */
async function imageJourney() {
  const { home, homeId } = await knownHome();
  const journey = await startJourney({ home });
  const engine = engineHere();
  const containers = async (): Promise<readonly string[]> =>
    (await engine.list([`escrow.owner=${homeId}`])).map(({ name }) => name);
  /** What preparations left: images of this Kernel, containers, temporary files. */
  const left = async (kernel: KernelConnection): Promise<Left> => {
    const { images } = await kernel.call('image/list', {});
    return {
      images: images.flatMap(({ owner, kind }) => (owner === 'this-home' ? [kind] : [])),
      containers: await containers(),
      temporary: await readdir(path.join(home, 'preparing')).catch(() => []),
    };
  };
  return { journey, containers, left };
}

test('a plan is read, refused, approved and done to its end; what was made is measured, listed, and removed after a preview', async () => {
  const { journey, left } = await imageJourney();
  const lock = await readFile(path.join(root, 'test/fixtures/locks/small/requirements.lock'), 'utf8');
  // A lock of this run alone: an image that another run made is not this one's.
  await writeFile(path.join(journey.repo, 'requirements.lock'), `${lock}# run ${randomBytes(8).toString('hex')}\n`);
  await contract(journey, 'packages', { dependencies: { python: 'requirements.lock' } });
  const window = await journey.workbench.open(journey.repo, wide);
  await window.openEscrow();
  await window.row('Health', /^Sandbox image[0-9a-f]{12}$/).waitFor();
  await withoutImagesAfter(journey, async (kernel) => {
    await window.openFile('packages.contract.jsonc');
    await window.command('Escrow: Check Baseline');
    const question = window.box('Prepare the Sandbox Image?');
    await question.getByText('Reaches for the network, this once.').waitFor();
    await window.line('Python packages of requirements.lock (reaches for the network, on this machine)').waitFor();
    await window.line('"--require-hashes"').waitFor();
    await pictures(window, 'image-question');
    await window.page.setViewportSize(narrow);
    await window.screenshot('image-question-narrow');
    await window.page.setViewportSize(wide);
    await window.pick('Do Not Prepare');
    await question.waitFor({ state: 'hidden' });
    expect(await left(kernel)).toEqual(nothing);

    // From the title of the plan that is still open.
    await window.editorAction(/^Prepare Sandbox Image/).click();
    await window.pick(/^PrepareReaches/);
    await window.row('Sessions', /Preparing image\d+ % · Python packages of requirements\.lock/).waitFor();
    await window.screenshot('image-preparing-dark');
    await window.told(/The sandbox image is ready: [0-9a-f]{12}/);
    await window.line('What preparing this sandbox image did').waitFor();
    await window.line('Approved by Ada Reviewer (window)').waitFor();
    await window.line('archives: 5').waitFor();
    await window.row('Sessions', /Preparing/).waitFor({ state: 'detached' });
    await pictures(window, 'image-record');
    expect((await left(kernel)).images.toSorted()).toEqual(['dependencies', 'prepared']);

    await window.command('Notifications: Clear All Notifications');
    await window.openFile('packages.contract.jsonc');
    await window.command('Escrow: Check Baseline');
    await window.told('The baseline discriminates');

    await window.command('Escrow: Show Sandbox Images');
    await window.line('Together:').waitFor();
    await window.line('each layer counted once').waitFor();
    await window.line('Not told by the engine').waitFor();
    await pictures(window, 'images');
    await window.page.setViewportSize(narrow);
    await window.screenshot('images-narrow');
    await window.page.setViewportSize(wide);

    await window.editorAction(/^Prune Sandbox Images/).click();
    await window.pick('Also Those That Could Still Be Used');
    await window.box('Remove These Images?').waitFor();
    await window.line('Would be removed').waitFor();
    await pictures(window, 'images-prune');
    await window.pick('Keep Them');
    expect((await left(kernel)).images).toHaveLength(2);
    await window.editorAction(/^Prune Sandbox Images/).click();
    await window.pick('Also Those That Could Still Be Used');
    await window.pick('Remove Them');
    await window.line('Sandbox images that were removed').waitFor();
    expect(await left(kernel)).toEqual(nothing);
  });
});

test('a preparation that is cancelled, or whose window is reloaded in the middle, leaves nothing, and no row says that it runs', async () => {
  const { journey, containers, left } = await imageJourney();
  await contract(journey, 'endless', { steps: [{ argv: ['sleep', '600'] }] });
  const window = await journey.workbench.open(journey.repo, wide);
  await window.openEscrow();
  await window.row('Health', /^Sandbox image[0-9a-f]{12}$/).waitFor();
  const running = window.row('Sessions', /Preparing image\d+ % · A command of the contract: sleep 600/);

  await withoutImagesAfter(journey, async (kernel) => {
    await window.openFile('endless.contract.jsonc');
    await window.command('Escrow: Check Baseline');
    await window.line('"sleep" "600"').waitFor();
    expect(await window.page.getByText('Prepare, Now and Later').count(), 'a yes to commands never stands').toBe(0);
    await window.pick(/^PrepareNothing is downloaded/);
    await running.waitFor();
    expect(await containers()).not.toEqual([]);
    await running.hover();
    await pictures(window, 'image-step');
    await running.getByRole('button', { name: /^Cancel/ }).click();
    await running.waitFor({ state: 'hidden' });
    const gone = async () => ((await containers()).length === 0 ? true : undefined);
    await until('the container of the step is gone', 30_000, gone);
    expect(await left(kernel)).toMatchObject({ containers: [], temporary: [] });
    expect(await window.notification().count(), 'what a person cancelled is not told to them').toBe(0);

    await window.openFile('endless.contract.jsonc');
    await window.command('Escrow: Check Baseline');
    await window.pick(/^PrepareNothing is downloaded/);
    await running.waitFor();
    await window.reload();
    await window.openEscrow();
    await window.row('Health', /^Sandbox image/).waitFor();
    expect(await window.row('Sessions', /Preparing/).count()).toBe(0);
    await until('the container of the step is gone', 60_000, gone);
    expect(await left(kernel)).toMatchObject({ containers: [], temporary: [] });
  });
});
