// npm run test:desktop [-- PATH OF VS CODE]: the extension in a desktop VS Code, and what its end leaves. Downloads VS
// Code's stable release when no path is given, and needs a display (on Linux: xvfb-run -a). Not a part of `npm test`.
import { rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { runTests } from '@vscode/test-electron';
import { readEndpoint } from '../../src/protocol/endpoint.ts';
import { processState } from '../../src/protocol/process-identity.ts';
import { exampleRepo } from '../fixtures/example-repo.ts';
import { endKernel, makeHome } from '../fixtures/kernel.ts';

const root = path.resolve(import.meta.dirname, '../..');
const [vscodeExecutablePath] = process.argv.slice(2);
const home = await makeHome();
const profile = await makeHome();
const example = await exampleRepo();
try {
  await writeFile(
    path.join(example.root, 'broken.contract.jsonc'),
    '{\n  "title": "x",\n  "writeable": ["src/usage.py"]\n}\n',
  );
  await runTests({
    ...(vscodeExecutablePath === undefined ? {} : { vscodeExecutablePath }),
    cachePath: path.join(root, '.cache', 'vscode-test'),
    extensionDevelopmentPath: root,
    extensionTestsPath: path.join(root, 'test', 'desktop', 'suite.cjs'),
    extensionTestsEnv: { ESCROW_HOME: home },
    launchArgs: [example.root, '--user-data-dir', profile, '--disable-workspace-trust', '--disable-extensions'],
  });
  const endpoint = await readEndpoint(home);
  const kernel = endpoint === undefined ? 'gone' : await processState(endpoint.pid, endpoint.processStart);
  process.stdout.write(`desktop: passed; after VS Code has quit, the Kernel is ${kernel}\n`);
  if (kernel !== 'alive') process.exitCode = 1;
} catch (error) {
  process.stderr.write(`desktop: ${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode = 1;
} finally {
  await endKernel(home);
  await Promise.all([home, profile, example.root].map((folder) => rm(folder, { recursive: true, force: true })));
}
