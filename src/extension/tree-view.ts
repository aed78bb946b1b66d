import * as vscode from 'vscode';
import { rowScheme } from './ids.ts';
import type { Icon, TreeNode } from './trees/tree-node.ts';

function themeIcon(icon: Icon): vscode.ThemeIcon {
  switch (icon.tone) {
    case 'plain':
      return new vscode.ThemeIcon(icon.id);
    case 'good':
      return new vscode.ThemeIcon(icon.id, new vscode.ThemeColor('testing.iconPassed'));
    case 'bad':
      return new vscode.ThemeIcon(icon.id, new vscode.ThemeColor('testing.iconFailed'));
    case 'warning':
      return new vscode.ThemeIcon(icon.id, new vscode.ThemeColor('list.warningForeground'));
    case 'muted':
      return new vscode.ThemeIcon(icon.id, new vscode.ThemeColor('disabledForeground'));
    default:
      return icon.tone satisfies never;
  }
}

/** Shows a tree of plain rows in a native tree view; finds parents, so that rows can be revealed. */
export class RowTreeView implements vscode.Disposable {
  readonly view: vscode.TreeView<TreeNode>;
  readonly #changed = new vscode.EventEmitter<undefined>();
  readonly #onExpand: (row: TreeNode) => void;
  #roots: readonly TreeNode[] = [];
  readonly #byId = new Map<string, { readonly row: TreeNode; readonly parent: TreeNode | undefined }>();
  /** The serialised rows on screen: a refresh that changes nothing must not redraw (it would move the focus). */
  #shown = '';

  constructor(viewId: string, options: { readonly onExpand: (row: TreeNode) => void }) {
    this.#onExpand = options.onExpand;
    this.view = vscode.window.createTreeView<TreeNode>(viewId, {
      showCollapseAll: true,
      treeDataProvider: {
        onDidChangeTreeData: this.#changed.event,
        getTreeItem: (row) => this.#item(row),
        getChildren: (row?: TreeNode) => {
          if (row === undefined) return [...this.#roots];
          if (row.children === 'load') {
            this.#onExpand(row);
            return [];
          }
          return [...row.children];
        },
        getParent: (row) => this.#byId.get(row.id)?.parent,
      },
    });
  }

  show(rows: readonly TreeNode[]): void {
    const serialised = JSON.stringify(rows);
    if (serialised === this.#shown) return;
    this.#shown = serialised;
    this.#roots = rows;
    this.#byId.clear();
    this.#index(rows, undefined);
    this.#changed.fire(undefined);
  }

  find(id: string): TreeNode | undefined {
    return this.#byId.get(id)?.row;
  }

  /** Shows and selects a row, without taking the focus. */
  async reveal(id: string): Promise<void> {
    const row = this.find(id);
    if (row !== undefined) await this.view.reveal(row, { select: true, focus: false, expand: true });
  }

  dispose(): void {
    this.view.dispose();
    this.#changed.dispose();
  }

  #index(rows: readonly TreeNode[], parent: TreeNode | undefined): void {
    for (const row of rows) {
      this.#byId.set(row.id, { row, parent });
      if (row.children !== 'load') this.#index(row.children, row);
    }
  }

  #item(row: TreeNode): vscode.TreeItem {
    const item = new vscode.TreeItem(
      row.label,
      row.collapsible === 'no'
        ? vscode.TreeItemCollapsibleState.None
        : row.collapsible === 'collapsed'
          ? vscode.TreeItemCollapsibleState.Collapsed
          : vscode.TreeItemCollapsibleState.Expanded,
    );
    item.id = row.id;
    if (row.description !== '') item.description = row.description;
    item.tooltip = row.tooltip;
    if (row.icon !== null) item.iconPath = themeIcon(row.icon);
    item.contextValue = row.context;
    item.accessibilityInformation = {
      label: row.spoken ?? [row.label, row.description].filter((s) => s !== '').join(', '),
    };
    if (row.command !== null) item.command = { command: row.command, title: row.label, arguments: [row] };
    // Only a URI carries a decoration, and only a decoration greys a label.
    if (!row.current) item.resourceUri = vscode.Uri.from({ scheme: rowScheme, path: '/stale' });
    return item;
  }
}

/** Greys the rows that are not what the Kernel says now. */
export function greyStaleRows(notCurrent: () => string): vscode.Disposable {
  return vscode.window.registerFileDecorationProvider({
    provideFileDecoration: (uri) =>
      uri.scheme === rowScheme
        ? { color: new vscode.ThemeColor('disabledForeground'), tooltip: notCurrent(), propagate: false }
        : undefined,
  });
}
