import * as vscode from 'vscode';
import { settings } from '../ids.ts';
import { reviewerName } from './reviewer-name.ts';

/** Who decides in this window, as a decision records it. */
export async function assertedReviewer(root: string | undefined): Promise<{ name: string; channel: 'window' }> {
  const setting = vscode.workspace.getConfiguration().get<string>(settings.reviewerName) ?? '';
  return { name: await reviewerName(setting, root), channel: 'window' };
}
