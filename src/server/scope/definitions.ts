import type { Definitions } from './definition.ts';
import type { FlatTree } from './flat-tree.ts';
import type { ScopeLanguage } from './port.ts';
import { pythonDefinitions } from './python-definitions.ts';
import { scriptDefinitions } from './script-definitions.ts';

/** What can be named in a file. Pure. */
export function definitionsOf(tree: FlatTree, language: ScopeLanguage): Definitions {
  return language === 'python' ? pythonDefinitions(tree) : scriptDefinitions(tree);
}
