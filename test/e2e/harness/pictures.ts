import type { WorkbenchWindow } from './window.ts';

const themes = ['light', 'contrast', 'dark'] as const;

/** Pictures of what the window shows, in each of these themes; the last one stays on. For eyes: `test-results/screenshots`. */
export async function pictures(
  window: WorkbenchWindow,
  name: string,
  which: readonly (typeof themes)[number][] = themes,
): Promise<void> {
  for (const theme of which) {
    await window.theme(theme);
    await window.screenshot(`${name}-${theme}`);
  }
}
