import { mkdir } from 'node:fs/promises';
import path from 'node:path';
import { until } from './until.ts';
import type { Browser, BrowserContext, Locator, Page } from 'playwright-core';
import { root } from '../../../scripts/lib/root.ts';

/** Runs in the page, before anything of it: keeps the words of each notification that comes on the screen. */
const keepNotifications = `
  globalThis.notificationsOfTest = new Set();
  const seen = new WeakMap();
  new MutationObserver(() => {
    for (const message of document.querySelectorAll('.notification-toast .notification-list-item-message')) {
      const text = message.textContent;
      // Once for each time that it changes: what a test has heard is not told again because something else moves.
      if (seen.get(message) !== text) notificationsOfTest.add(text);
      seen.set(message, text);
    }
  }).observe(document, { subtree: true, childList: true, characterData: true });
`;

/** One window of the workbench: a page with the few gestures that the tests need. */
export class WorkbenchWindow {
  readonly page: Page;
  readonly browser: Browser;
  readonly #context: BrowserContext;

  private constructor(browser: Browser, context: BrowserContext, page: Page) {
    this.browser = browser;
    this.#context = context;
    this.page = page;
  }

  static async open(
    browser: Browser,
    url: string,
    viewport: { readonly width: number; readonly height: number },
  ): Promise<WorkbenchWindow> {
    const context = await browser.newContext({
      viewport,
      locale: 'en-GB',
      reducedMotion: 'reduce',
      colorScheme: 'dark',
    });
    await context.addInitScript({ content: `{${keepNotifications}}` });
    const page = await context.newPage();
    page.setDefaultTimeout(120_000);
    const window = new WorkbenchWindow(browser, context, page);
    await page.goto(url);
    await window.restored();
    return window;
  }

  /** The workbench is drawn and takes commands. */
  async restored(): Promise<void> {
    await this.page.locator('.monaco-workbench .part.statusbar').waitFor();
    await this.page.locator('.monaco-workbench .activitybar .action-item').first().waitFor();
  }

  async close(): Promise<void> {
    if (!this.page.isClosed()) await this.page.close();
    await this.#context.close();
  }

  /** Reloads like *Reload Window*: same window, new extension host. */
  async reload(): Promise<void> {
    await this.page.reload();
    await this.restored();
  }

  /** Runs a command by its title in the command palette. */
  async command(title: string): Promise<void> {
    const input = this.page
      .locator('.quick-input-widget input.input, .quick-input-widget .quick-input-box input')
      .first();
    // By the whole title: the first match may be another command whose name only contains it.
    const whole = new RegExp(`^${title.replaceAll(/[.*+?^${}()|[\]\\]/g, String.raw`\$&`)}…?$`);
    const row = this.page
      .locator('.quick-input-list .monaco-list-row')
      .filter({ has: this.page.locator('.label-name', { hasText: whole }) })
      .first();
    // A key that comes while another quick input closes is lost. And the palette lists the commands that were possible
    // when it opened: one whose context comes a moment later is only in the next.
    await until(`the command ${title} is in the palette`, 120_000, async () => {
      await this.page.keyboard.press('F1');
      try {
        await input.waitFor({ timeout: 10_000 });
        await input.fill(`>${title}`, { timeout: 10_000 });
        await row.click({ timeout: 10_000 });
        return true;
      } catch {
        await this.page.keyboard.press('Escape');
        return undefined;
      }
    });
  }

  /** Picks the row of the open quick pick whose text contains `text`. */
  async pick(text: string | RegExp): Promise<void> {
    await this.page.locator('.quick-input-list .monaco-list-row').filter({ hasText: text }).first().click();
  }

  /** The box that asks something, by its title. By its title: the box before may still be closing. */
  box(title: string): Locator {
    return this.page.locator('.quick-input-widget', {
      has: this.page.locator('.quick-input-title', { hasText: title }),
    });
  }

  /** Waits until keys go to the box of this title: it has the focus a moment after it is seen. */
  async boxHasFocus(title: string): Promise<void> {
    await this.box(title).locator('.quick-input-box input:focus').waitFor();
  }

  /** Types into the box of this title and sees that it is there: keys go to whatever has the focus. */
  async type(title: string, text: string): Promise<void> {
    const input = this.box(title).locator('.quick-input-box input').first();
    await until(`the box "${title}" has the words`, 120_000, async () => {
      await input.fill(text);
      return (await input.inputValue()) === text ? true : undefined;
    });
  }

  /** Types into the box of this title and confirms. */
  async answer(title: string, text: string): Promise<void> {
    await this.type(title, text);
    // With the keyboard: the box goes while the key is on its way.
    await this.page.keyboard.press('Enter');
  }

  /** Shows Escrow's view container, whether or not it was restored. */
  async openEscrow(): Promise<void> {
    const icon = this.page.locator('.activitybar .action-item', { has: this.page.locator('a[aria-label^="Escrow"]') });
    await icon.waitFor();
    await until('the view container of Escrow is shown', 120_000, async () => {
      // A click on the icon of what is shown would hide it; one that came just before a restored view did, is made good.
      if ((await icon.getAttribute('aria-selected')) !== 'true') await icon.click();
      return this.pane('Sessions')
        .waitFor({ timeout: 5000 })
        .then(
          () => true as const,
          () => undefined,
        );
    });
  }

  /** One view (a pane) of the side bar. */
  pane(name: string): Locator {
    return this.page.locator('.split-view-view .pane', {
      has: this.page.locator(`.pane-header[aria-label^="${name}"]`),
    });
  }

  /** A row of a tree by the text it shows. */
  row(pane: string, text: string | RegExp): Locator {
    return this.pane(pane).locator('.monaco-list-row').filter({ hasText: text }).first();
  }

  /** A line that an editor shows, by a part of it. Of several editors that hold it, one that is to be seen. */
  line(text: string): Locator {
    return this.page.locator('.view-line', { hasText: text }).filter({ visible: true }).first();
  }

  /** A code lens in the active editor. */
  codeLens(name: string): Locator {
    return this.page.locator('.codelens-decoration', { hasText: name }).first();
  }

  /** Expands a collapsed row. */
  async expand(row: Locator): Promise<void> {
    if ((await row.getAttribute('aria-expanded')) === 'false') await row.locator('.monaco-tl-twistie').click();
  }

  async collapse(row: Locator): Promise<void> {
    if ((await row.getAttribute('aria-expanded')) === 'true') await row.locator('.monaco-tl-twistie').click();
  }

  /** The text of Escrow's status bar item. */
  statusBarItem(): Locator {
    return this.page.locator('.statusbar-item', { hasText: 'Escrow' }).first();
  }

  /** A button in the title of the active editor, by its name. */
  editorAction(name: RegExp): Locator {
    return this.page.locator('.editor-actions').getByRole('button', { name });
  }

  /** The tab of an open editor, by its name. */
  tab(name: RegExp): Locator {
    return this.page.locator('.tabs-container .tab').filter({ hasText: name }).first();
  }

  /** Opens a file of the folder by its name, with the keyboard in it. */
  async openFile(name: string): Promise<void> {
    const input = this.page.locator('.quick-input-widget .quick-input-box input').first();
    const row = this.page.locator('.quick-input-list .monaco-list-row').filter({ hasText: name }).first();
    // As with a command: a key that comes while another quick input closes is lost.
    await until(`${name} is found`, 180_000, async () => {
      await this.page.keyboard.press('Control+P');
      try {
        await input.waitFor({ timeout: 10_000 });
        await input.fill(name, { timeout: 10_000 });
        // A search of files starts a process, and begins anew with each try.
        await row.click({ timeout: 60_000 });
        return true;
      } catch {
        await this.page.keyboard.press('Escape');
        return undefined;
      }
    });
    await this.page.locator('.editor-group-container.active .tab.active', { hasText: name }).waitFor();
    await this.page.locator('.editor-group-container.active .monaco-editor.focused').first().waitFor();
  }

  /** Notifications that are on the screen now. */
  notification(): Locator {
    return this.page.locator('.notification-toast .notification-list-item-message');
  }

  /**
   * Waits until a notification with such words has been on the screen since this document was opened, and forgets it:
   * they leave after some seconds, which may pass while a test on a slow machine waits for something else.
   */
  async told(words: string | RegExp): Promise<void> {
    const pattern = typeof words === 'string' ? words.replaceAll(/[.*+?^${}()|[\]\\]/g, String.raw`\$&`) : words.source;
    const flags = typeof words === 'string' ? '' : words.flags;
    await this.page.waitForFunction(
      ([source, flags]) => {
        const kept = (globalThis as unknown as { notificationsOfTest: Set<string> }).notificationsOfTest;
        const found = [...kept].filter((text) => new RegExp(source, flags).test(text));
        for (const text of found) kept.delete(text);
        return found.length > 0;
      },
      [pattern, flags] as const,
    );
  }

  /** A button of a notification on screen. */
  notificationButton(name: string): Locator {
    return this.page.locator('.notification-toast').getByRole('button', { name, exact: true }).first();
  }

  /** Shows the window as the system would ask for: `quietSettings` follows it. */
  async theme(kind: 'dark' | 'light' | 'contrast'): Promise<void> {
    await this.page.emulateMedia({
      colorScheme: kind === 'light' ? 'light' : 'dark',
      forcedColors: kind === 'contrast' ? 'active' : 'none',
    });
    const body = { dark: 'vs-dark', light: 'vs', contrast: 'hc-black' }[kind];
    await this.page.locator(`.monaco-workbench.${body}`).waitFor();
  }

  async screenshot(name: string): Promise<string> {
    const folder = path.join(root, 'test-results', 'screenshots');
    const file = path.join(folder, `${name}.png`);
    await mkdir(path.dirname(file), { recursive: true });
    await this.page.screenshot({ path: file, animations: 'disabled' });
    return file;
  }
}
