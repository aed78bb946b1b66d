import * as vscode from 'vscode';
import { views } from './ids.ts';
import type { StateStore } from './window-state.ts';

/** Long requests of this window: a row and a progress line in the Sessions view, cancellable there. */
export class Operations {
  readonly #store: StateStore;
  readonly #now: () => number;
  readonly #running = new Map<number, vscode.CancellationTokenSource>();
  #next = 1;

  constructor(store: StateStore, now: () => number) {
    this.#store = store;
    this.#now = now;
  }

  /** `work` may say how it goes: its words replace the row's detail. `cancellable` false: it has no way back. */
  async run<T>(
    label: string,
    detail: string,
    work: (token: vscode.CancellationToken, progress: (detail: string) => void) => Promise<T>,
    cancellable = true,
  ): Promise<T> {
    const id = this.#next++;
    const source = new vscode.CancellationTokenSource();
    this.#running.set(id, source);
    this.#store.update({
      operations: [...this.#store.state.operations, { id, label, detail, startedAt: this.#now(), cancellable }],
    });
    try {
      return await vscode.window.withProgress({ location: { viewId: views.sessions } }, () =>
        work(source.token, (words) => this.#describe(id, words)),
      );
    } finally {
      this.#running.delete(id);
      source.dispose();
      this.#store.update({ operations: this.#store.state.operations.filter((operation) => operation.id !== id) });
    }
  }

  #describe(id: number, detail: string): void {
    this.#store.update({
      operations: this.#store.state.operations.map((operation) =>
        operation.id === id ? { ...operation, detail } : operation,
      ),
    });
  }

  cancel(id: number): void {
    this.#running.get(id)?.cancel();
  }

  dispose(): void {
    for (const source of this.#running.values()) source.cancel();
  }
}
