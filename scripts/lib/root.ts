import path from 'node:path';

/** Absolute path of the repository. */
export const root = path.resolve(import.meta.dirname, '..', '..');
/** Where bundles and what they need at run time are written. */
export const dist = path.join(root, 'dist');
