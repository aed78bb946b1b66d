import { isAbsolute } from 'node:path';

/**
 * True for a tag that Ollama proxies to its cloud, or may: from 0.17.6 any tag that ends in `:cloud` or `-cloud`, even
 * without a local manifest. A model whose name (before the tag) ends so is refused as well: better one local model too
 * few than one prompt sent out.
 */
export function isCloudName(tag: string): boolean {
  const last = tag.trim().toLowerCase().split('/').at(-1) ?? '';
  return last.split(':').some((part) => part === 'cloud' || part.endsWith('-cloud'));
}

/** What an engine may call a model: registry, namespace, name, tag. No spaces, no control characters, no path tricks. */
export function isWellFormedTag(tag: string): boolean {
  return (
    tag.length <= 512 &&
    /^[A-Za-z0-9][A-Za-z0-9._-]*(:\d+)?(\/[A-Za-z0-9][A-Za-z0-9._-]*){0,4}(:[A-Za-z0-9][A-Za-z0-9._-]*)?$/.test(tag)
  );
}

/** The same name with its tag spelled out; Ollama compares names without regard to case. */
export function canonicalTag(tag: string): string {
  // A rehearsal script asked for by its path: paths keep their case and have no tag.
  if (isAbsolute(tag)) return tag;
  const last = tag.lastIndexOf('/');
  const spelled = tag.indexOf(':', last + 1) === -1 ? `${tag}:latest` : tag;
  return spelled.toLowerCase();
}
