import * as vscode from 'vscode';
import { rowScheme } from './ids.ts';
import { treeChanges } from './trees/tree-changes.ts';
import type { Icon, Target, TreeNode } from './trees/tree-node.ts';

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

/** A row as VS Code holds it: the same object as long as its id is shown, whatever the row says. */
export class RowHandle {
  row: TreeNode;
  parent: RowHandle | undefined;

  constructor(row: TreeNode, parent: RowHandle | undefined) {
    this.row = row;
    this.parent = parent;
  }

  get target(): Target {
    return this.row.target;
  }
}

/** Shows a tree of plain rows in a native tree view, and draws only what changed. */
export class RowTreeView implements vscode.Disposable {
  readonly view: vscode.TreeView<RowHandle>;
  readonly #changed = new vscode.EventEmitter<RowHandle[] | undefined>();
  #roots: readonly TreeNode[] = [];
  #handles = new Map<string, RowHandle>();

  constructor(viewId: string, options: { readonly onExpand: (row: TreeNode) => void }) {
    this.view = vscode.window.createTreeView<RowHandle>(viewId, {
      showCollapseAll: true,
      treeDataProvider: {
        onDidChangeTreeData: this.#changed.event,
        getTreeItem: ({ row }) => item(row),
        getChildren: (handle?: RowHandle) => {
          const rows = handle === undefined ? this.#roots : handle.row.children;
          if (rows !== 'load') return rows.flatMap(({ id }) => this.#handles.get(id) ?? []);
          if (handle !== undefined) options.onExpand(handle.row);
          return [];
        },
        getParent: (handle) => handle.parent,
      },
    });
  }

  show(rows: readonly TreeNode[]): void {
    const changes = treeChanges(this.#roots, rows);
    if (changes.kind === 'rows' && changes.ids.length === 0) return;
    this.#roots = rows;
    const before = this.#handles;
    this.#handles = new Map();
    this.#keep(rows, undefined, before);
    this.#changed.fire(changes.kind === 'all' ? undefined : changes.ids.flatMap((id) => this.#handles.get(id) ?? []));
  }

  /** Shows and selects a row, without taking the focus. */
  async reveal(id: string): Promise<void> {
    const handle = this.#handles.get(id);
    if (handle !== undefined) await this.view.reveal(handle, { select: true, focus: false, expand: true });
  }

  dispose(): void {
    this.view.dispose();
    this.#changed.dispose();
  }

  #keep(rows: readonly TreeNode[], parent: RowHandle | undefined, before: ReadonlyMap<string, RowHandle>): void {
    for (const row of rows) {
      const handle = before.get(row.id) ?? new RowHandle(row, parent);
      handle.row = row;
      handle.parent = parent;
      this.#handles.set(row.id, handle);
      if (row.children !== 'load') this.#keep(row.children, handle, before);
    }
  }
}

function item(row: TreeNode): vscode.TreeItem {
  const shown = new vscode.TreeItem(
    row.label,
    row.collapsible === 'no'
      ? vscode.TreeItemCollapsibleState.None
      : row.collapsible === 'collapsed'
        ? vscode.TreeItemCollapsibleState.Collapsed
        : vscode.TreeItemCollapsibleState.Expanded,
  );
  shown.id = row.id;
  if (row.description !== '') shown.description = row.description;
  shown.tooltip = row.tooltip;
  if (row.icon !== null) shown.iconPath = themeIcon(row.icon);
  shown.contextValue = row.context;
  shown.accessibilityInformation = {
    label: row.spoken ?? [row.label, row.description].filter((part) => part !== '').join(', '),
  };
  if (row.command !== null) {
    shown.command = { command: row.command, title: row.label, arguments: [{ target: row.target }] };
  }
  // Only a URI carries a decoration, and only a decoration greys a label.
  if (!row.current) shown.resourceUri = vscode.Uri.from({ scheme: rowScheme, path: '/stale' });
  return shown;
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
