import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { errorCodes, type ErrorCode } from '../../../src/protocol/errors.ts';
import { nextStep } from '../../../src/extension/next-step.ts';
import {
  commands,
  contextKeys,
  contractLanguage,
  evidenceLanguage,
  outputLanguage,
  settings,
  viewContainer,
  views,
  walkthroughId,
} from '../../../src/extension/ids.ts';

const root = path.resolve(import.meta.dirname, '../../..');
const read = (file: string): string => readFileSync(path.join(root, file), 'utf8');

interface Clause {
  readonly command?: string;
  readonly when?: string;
}
const manifest = JSON.parse(read('package.json')) as {
  readonly capabilities: { readonly untrustedWorkspaces: { readonly restrictedConfigurations: readonly string[] } };
  readonly contributes: {
    readonly commands: readonly { readonly command: string; readonly title: string; readonly enablement?: string }[];
    readonly menus: Readonly<Record<string, readonly Clause[]>>;
    readonly views: Readonly<Record<string, readonly { readonly id: string }[]>>;
    readonly viewsWelcome: readonly { readonly view: string; readonly contents: string; readonly when: string }[];
    readonly configuration: { readonly properties: Readonly<Record<string, { readonly scope: string }>> };
    readonly languages: readonly { readonly id: string }[];
    readonly walkthroughs: readonly {
      readonly id: string;
      readonly steps: readonly {
        readonly completionEvents: readonly string[];
        readonly media: { readonly svg: string };
      }[];
    }[];
  };
};
const { contributes } = manifest;
const nls = JSON.parse(read('package.nls.json')) as Readonly<Record<string, string>>;

/** The extension's own code, all files together. */
function sources(): string {
  return readdirSync(path.join(root, 'src', 'extension'), { recursive: true, encoding: 'utf8' })
    .filter((file) => file.endsWith('.ts'))
    .map((file) => read(path.join('src', 'extension', file)))
    .join('\n');
}

/** Every when-clause of the manifest, with where it stands. */
function clauses(): readonly (readonly [string, string])[] {
  return [
    ...Object.entries(contributes.menus).flatMap(([menu, items]) =>
      items.map((item) => [`${menu}: ${item.command ?? ''}`, item.when ?? ''] as const),
    ),
    ...contributes.viewsWelcome.map(({ view, when }) => [`welcome of ${view}`, when] as const),
    ...contributes.commands.map(({ command, enablement }) => [command, enablement ?? ''] as const),
  ];
}

describe('what package.json declares and what the code knows are the same', () => {
  test('commands', () => {
    expect(contributes.commands.map(({ command }) => command).toSorted()).toEqual(Object.values(commands).toSorted());
  });

  test('each command has a handler', () => {
    const code = sources();
    const missing = Object.keys(commands).filter((name) => !code.includes(`[commands.${name}]`));
    expect(missing).toEqual([]);
  });

  test('views, their container, settings, languages, the walkthrough', () => {
    expect(Object.keys(contributes.views)).toEqual([viewContainer]);
    expect(contributes.views[viewContainer]?.map(({ id }) => id)).toEqual(Object.values(views));
    expect(Object.keys(contributes.configuration.properties).toSorted()).toEqual(Object.values(settings).toSorted());
    expect(contributes.languages.map(({ id }) => id)).toEqual([contractLanguage, outputLanguage, evidenceLanguage]);
    expect(contributes.walkthroughs.map(({ id }) => id)).toEqual([walkthroughId]);
  });

  test('menus and welcome texts name commands that exist', () => {
    const known = new Set<string>(Object.values(commands));
    const named = [
      ...Object.values(contributes.menus).flatMap((items) => items.map(({ command }) => command ?? '')),
      ...Object.entries(nls)
        .filter(([key]) => key.startsWith('welcome.') || key.startsWith('walkthrough.'))
        .flatMap(([, text]) => [...text.matchAll(/\(command:(escrow\.[\w.]+)/g)].map(([, id]) => id ?? '')),
    ];
    expect(named.filter((id) => !known.has(id))).toEqual([]);
  });

  test('when-clauses read context keys that somebody sets', () => {
    const known = new Set<string>(Object.values(contextKeys));
    const unknown = clauses().flatMap(([where, when]) =>
      [...when.matchAll(/\bescrow\.[\w.]+/g)]
        .map(([key]) => key)
        // Values of `view ==` and of language ids are not keys.
        .filter(
          (key) => !known.has(key) && !Object.values(views).some((id) => id === key) && !when.includes(`/^${key}`),
        )
        .map((key) => `${where}: ${key}`),
    );
    expect(unknown.filter((entry) => !entry.includes('view =~'))).toEqual([]);
  });

  test('words that menus look for in a row are words that rows have', () => {
    const code = [...sources().matchAll(/contextWords\(([^;]*?)\)[,;\n]/g)].map(([, words]) => words).join();
    const wanted = new Set(
      clauses().flatMap(([, when]) =>
        [...when.matchAll(/viewItem =~ \/;(\w[\w-]*);\//g)].map(([, word]) => word ?? ''),
      ),
    );
    expect(wanted.size).toBeGreaterThan(10);
    expect([...wanted].filter((word) => !code.includes(`'${word}'`))).toEqual([]);
  });

  test('a file of this machine is one in a remote window too, where the workbench calls its scheme otherwise', () => {
    for (const [where, when] of clauses()) expect(when, where).not.toContain('resourceScheme == file');
  });

  test('a candidate’s row can be decided about while another candidate is on screen', () => {
    for (const [id, word] of [
      [commands.acceptCandidate, 'acceptable'],
      [commands.rejectCandidate, 'rejectable'],
    ]) {
      const { enablement } = contributes.commands.find(({ command }) => command === id) ?? {};
      expect(enablement).toContain(`viewItem =~ /;${word};/`);
    }
  });

  test('every text is in package.nls.json, and every text there is used', () => {
    const used = new Set([...read('package.json').matchAll(/"%([^%"]+)%"/g)].map(([, key]) => key ?? ''));
    expect([...used].filter((key) => !(key in nls))).toEqual([]);
    expect(Object.keys(nls).filter((key) => !used.has(key))).toEqual([]);
  });
});

/** Texts in `t('…')` calls, as VS Code looks them up: the English text is the key. */
function localized(code: string): Readonly<Record<string, string>> {
  const texts = [...code.matchAll(/\bt\(\s*'((?:[^'\\]|\\.)*)'/g)].map(([, text]) =>
    (text ?? '').replaceAll(String.raw`\'`, "'").replaceAll(String.raw`\n`, '\n'),
  );
  return Object.fromEntries([...new Set(texts)].toSorted().map((text) => [text, text]));
}

test('translators find every text in the bundle (written anew by vitest -u)', async () => {
  await expect(`${JSON.stringify(localized(sources()), null, 2)}\n`).toMatchFileSnapshot(
    path.join(root, 'l10n', 'bundle.l10n.json'),
  );
});

describe('manners', () => {
  test('settings that choose a program or a host belong to the machine and are restricted', () => {
    const choosing = [settings.kernelNode, settings.engineHost, settings.ollamaHost, settings.executionEnabled];
    for (const name of choosing) {
      expect(contributes.configuration.properties[name]?.scope, name).toBe('machine');
      expect(manifest.capabilities.untrustedWorkspaces.restrictedConfigurations, name).toContain(name);
    }
  });

  test('commands that need a row are not in the palette', () => {
    const hidden = contributes.menus['commandPalette']
      ?.filter(({ when }) => when === 'false')
      .map(({ command }) => command);
    for (const id of [commands.openCandidateFile, commands.cancelOperation, commands.reconcileAttempt]) {
      expect(hidden).toContain(id);
    }
  });

  test('the step that an error offers is a command that exists, and one that the palette could run', () => {
    const known = new Set<string>(Object.values(commands));
    const hidden = new Set(
      contributes.menus['commandPalette']?.filter(({ when }) => when === 'false').map(({ command }) => command),
    );
    const steps = Object.keys(errorCodes).flatMap(
      (code) => nextStep({ code: code as ErrorCode, details: {} }, (text) => text) ?? [],
    );
    expect(steps.length).toBeGreaterThan(0);
    for (const { command } of steps.filter(({ command: id }) => !id.startsWith('workbench.'))) {
      expect(known).toContain(command);
      expect(hidden).not.toContain(command);
    }
  });

  test('walkthrough pictures exist and use the theme’s colours only where it has them', () => {
    for (const { media } of contributes.walkthroughs[0]?.steps ?? []) {
      const picture = read(media.svg);
      expect(picture).toContain('var(--vscode-');
      expect(picture).not.toMatch(/<script|href=/);
    }
  });
});
