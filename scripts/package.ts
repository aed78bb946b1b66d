// npm run package [-- TARGET]: a VSIX that holds only what runs, for this machine's platform or the one named.
import { ownTarget, packageVsix, vsixTargets, type VsixTarget } from './lib/package-vsix.ts';
import { reportFailure, SetupError } from './lib/ui.ts';

try {
  const [named] = process.argv.slice(2);
  if (named !== undefined && !(named in vsixTargets)) {
    throw new SetupError(`there is no target ${named}`, `There are: ${Object.keys(vsixTargets).join(', ')}`);
  }
  const { file, bytes, files } = await packageVsix((named as VsixTarget | undefined) ?? ownTarget());
  for (const each of files) process.stderr.write(`  ${each}\n`);
  process.stdout.write(`${file} ${(bytes / 1_048_576).toFixed(2)} MiB\n`);
} catch (error) {
  reportFailure(error);
}
