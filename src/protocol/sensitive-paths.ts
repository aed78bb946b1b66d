/**
 * Files that tools on the host read and act upon by themselves: an editor's tasks, a dev container's commands, the
 * settings and instructions of other agents, git's attributes and hooks. A candidate that may write one could make the
 * host run something, so they are never writable and never integrated, at any depth (adversarial 48).
 */
const hostFolders = new Set([
  '.git',
  '.vscode',
  '.vscode-server',
  '.vs',
  '.idea',
  '.fleet',
  '.zed',
  '.devcontainer',
  '.githooks',
  '.husky',
  '.claude',
  '.cursor',
  '.codex',
  '.gemini',
  '.continue',
  '.windsurf',
  '.roo',
  '.kiro',
  '.clinerules',
  '.amazonq',
  '.opencode',
  '.direnv',
  '.cargo',
]);
const hostFiles = new Set([
  '.mcp.json',
  'mcp.json',
  '.devcontainer.json',
  'devcontainer.json',
  '.gitattributes',
  '.gitmodules',
  '.gitconfig',
  '.envrc',
  '.mise.toml',
  '.tool-versions',
  '.cursorrules',
  '.windsurfrules',
  '.clinerules',
  '.roomodes',
  '.pre-commit-config.yaml',
  '.lefthook.yml',
  'lefthook.yml',
  'agents.md',
  'claude.md',
  'gemini.md',
  'copilot-instructions.md',
  '.aider.conf.yml',
  'opencode.json',
  '.bashrc',
  '.profile',
  '.zshrc',
]);

/**
 * The name of the folder or file that makes a path dangerous to write on the host, or undefined. Names are compared
 * without regard to case, as most of the host's file systems do.
 */
export function hostToolPath(path: string): string | undefined {
  const segments = path.split('/');
  const leaf = segments.at(-1) ?? '';
  const folder = segments.slice(0, -1).find((segment) => hostFolders.has(segment.toLowerCase()));
  if (folder !== undefined) return folder;
  const name = leaf.toLowerCase();
  if (hostFiles.has(name) || hostFolders.has(name) || name.endsWith('.code-workspace')) return leaf;
  return undefined;
}

const secretFolders = new Set(['.ssh', '.gnupg', '.aws', '.azure', '.kube', '.gcloud', '.docker', '.password-store']);
const secretFiles = new Set([
  '.env',
  '.netrc',
  '_netrc',
  '.npmrc',
  '.yarnrc.yml',
  '.pypirc',
  '.pgpass',
  '.my.cnf',
  '.git-credentials',
  '.htpasswd',
  '.dockercfg',
  '.vault-token',
  'credentials',
  'credentials.json',
  'secrets.json',
  'secrets.yml',
  'secrets.yaml',
  'secrets.toml',
  'service-account.json',
  'id_rsa',
  'id_dsa',
  'id_ecdsa',
  'id_ed25519',
]);
const secretExtensions =
  /\.(?:pem|key|p12|pfx|p8|jks|keystore|kdbx|kdb|ppk|gpg|asc|tfstate|tfstate\.backup|tfvars|ovpn|mobileprovision)$/;
/** Written to be read by everyone, whatever they are named after. */
const samples = /\.(?:example|sample|template|dist|defaults?)$/;

/** Whether a path is named like one that holds a secret. Only the name is looked at: see also `startsLikePrivateKey`. */
export function looksSecret(path: string): boolean {
  const segments = path.toLowerCase().split('/');
  const leaf = segments.at(-1) ?? '';
  if (segments.slice(0, -1).some((segment) => secretFolders.has(segment))) return true;
  if (samples.test(leaf)) return false;
  return secretFiles.has(leaf) || leaf.startsWith('.env.') || secretExtensions.test(leaf);
}

const armour = /^\s*-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----/;

/** Whether a file begins as an armoured private key does, whatever its name. */
export function startsLikePrivateKey(bytes: Uint8Array): boolean {
  return armour.test(Buffer.from(bytes.subarray(0, 128)).toString('latin1'));
}
