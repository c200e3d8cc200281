/**
 * Time limits for everything that waits in a cluster without faults. Rest alone (`../rest.ts`) shows only that each wait ends
 * some time, while anything else goes on.
 *
 * L9: once faults have ended and every process runs, no wait lasts longer than the budget of its kind. A wait that makes progress,
 *     which shows in its words, begins anew.
 */

/** In virtual milliseconds. Each budget adds the delays that a single wait may legitimately meet, from the named constants. */
export const budgets = {
  /** A manager that serves: three attempts of 5 s to read the snapshots (`follow.ts`), and a lock that its operator opens. */
  manager: 45_000,
  /** A leader: a lease of 3 s, whose holder is gone, and the barrier of the next, whose append may wait 5 s for its answer. */
  leader: 15_000,
  /** A healthy manager: its trouble is cleared by the first probe that returns, two of which may be lost (`progress.ts`). */
  health: 20_000,
  /** READY for a node whose agent runs: back-off of up to 8 s and a registration of up to 5 s, twice (`agent/session.machine.ts`). */
  session: 45_000,
  /** A task that its node must prepare, start or stop: a session, and 10 s until it is killed (the default stop grace period). */
  order: 60_000,
  /** Addresses and a node for a new task: rounds of allocator and scheduler, and a session with a node that has room. */
  placement: 60_000,
  /** Another node for a task of a drained one. */
  drain: 15_000,
  /** A rollout in one state: monitoring, delays and replacements of all slots; a deadline of its own is L2's (R5). */
  rollout: 240_000,
  /** A job's next finished task: a task lives up to 15 s, and a failed one is retried with a delay. */
  job: 120_000,
  /** A certificate that its node has asked for: the signer's next round, and the node's question every few seconds. */
  certificate: 45_000,
  /** A new root: every node renews its certificate, one after another at worst. */
  rotation: 120_000,
  /** The next step of a volume at its storage plugin: a step that hangs is given up after 60 s, and retried. */
  volume: 120_000,
  /** Rules on a node: a driver without a pulse is restarted after 90 s, with a back-off of up to 30 s (`dataplane-driver.machine.ts`). */
  policy: 130_000,
  /** A subscription to output that does not follow: a silent node is given up after 3 announcements, a second apart. */
  subscription: 30_000,
  /** The next message of a watcher: it comes back within 1.5 s, and a manager may read the past for 8 attempts of 2 s. */
  watcher: 45_000,
  /** A key file locked by the cluster's key: written when a manager that has just started reads the log's newest record. */
  lock: 60_000,
  /** The role of a demoted manager: 10 s for it to exit, and a retry after 5 s (`demotion.machine.ts`). */
  role: 45_000,
  /** The end of a removed service: its tasks stop first. */
  removal: 75_000,
} as const;

export type BudgetKind = keyof typeof budgets;

export interface Wait {
  readonly kind: BudgetKind;
  /** The thing that waits, and what for; the same words while it makes no progress. */
  readonly what: string;
}

export class Budgets {
  /** By wait: when it was first seen, in milliseconds. */
  #since = new Map<string, number>();

  /** Nothing counts before now, such as while a process is down. */
  restart(): void {
    this.#since.clear();
  }

  /** L9. `waits`: all current ones; those that were not seen before begin now. */
  look(waits: Iterable<Wait>, nowMs: number): string | null {
    const since = new Map<string, number>();
    let overdue: string | null = null;
    for (const { kind, what } of waits) {
      const key = `${kind} ${what}`;
      const begun = this.#since.get(key) ?? nowMs;
      since.set(key, begun);
      const ms = nowMs - begun;
      if (ms > budgets[kind])
        overdue ??= `L9: for ${Math.round(ms)} ms, longer than the ${budgets[kind]} ms of its kind (${kind}): ${what}`;
    }
    this.#since = since;
    return overdue;
  }
}
