/** Effects of the faults of each kind, for the run's last lines. */
interface Measured {
  /** Longest time without a successful write at any manager. */
  readonly anywhereMs: number;
  /** The same for one manager, the worst. */
  readonly worstMs: number;
  /** From healing until the cluster was whole. */
  readonly wholeMs: number;
}

export class FaultTable {
  readonly #rows = new Map<string, Measured & { readonly count: number }>();

  add(kind: string, measured: Measured): void {
    const row = this.#rows.get(kind);
    const longest = (field: keyof Measured): number => Math.max(row?.[field] ?? 0, measured[field]);
    this.#rows.set(kind, {
      count: (row?.count ?? 0) + 1,
      anywhereMs: longest("anywhereMs"),
      worstMs: longest("worstMs"),
      wholeMs: longest("wholeMs"),
    });
  }

  get count(): number {
    return [...this.#rows.values()].reduce((sum, { count }) => sum + count, 0);
  }

  text(): string {
    const seconds = (ms: number): string => (ms / 1_000).toFixed(1);
    const rows = [...this.#rows]
      .toSorted(([a], [b]) => (a < b ? -1 : 1))
      .map(([kind, row]) => [kind, String(row.count), ...[row.anywhereMs, row.worstMs, row.wholeMs].map(seconds)]);
    const head = ["fault", "count", "longest without a write (s)", "at one manager (s)", "whole after (s)"];
    const lines = [head, head.map((title) => "-".repeat(title.length)), ...rows];
    const widths = head.map((_, at) => Math.max(...lines.map((line) => line[at]?.length ?? 0)));
    return lines.map((line) => `| ${line.map((cell, at) => cell.padEnd(widths[at] ?? 0)).join(" | ")} |`).join("\n");
  }
}
