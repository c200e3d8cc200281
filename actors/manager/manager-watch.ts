/** The leader's watch over the other managers: hosts one `machines/manager/manager-watch.machine.ts` for each. */
import { Manager, Operation, ProposeRequest_Mode, StoreObject } from "../../proto/gen/messages.ts";
import { formatId, levelOf } from "../../proto/format-level.ts";
import { managerWatchMachine } from "../../machines/manager/manager-watch.machine.ts";
import type { HostedActor } from "../../runtime/host.ts";
import type { Commit } from "../../runtime/store/store.ts";
import { managerBeats, parseManagerBeat } from "../../runtime/subjects.ts";
import type { Environment, Running } from "../environment.ts";

const proposeTimeoutMs = 2_000;

export function startManagerWatch(env: Environment): Running {
  return new ManagerWatch(env);
}

class ManagerWatch implements Running {
  readonly #env: Environment;
  readonly #watched = new Map<string, HostedActor<typeof managerWatchMachine>>();
  readonly #stops: (() => void)[];
  #stopped = false;

  constructor(env: Environment) {
    this.#env = env;
    const { bus, store } = env;
    const beats = bus.subscribe(managerBeats, ({ subject }) => this.#onBeat(parseManagerBeat(subject)));
    const link = bus.onLink((up) => {
      for (const watched of this.#watched.values()) watched.send({ type: up ? "link.up" : "link.down" });
    });
    const watch = store.watch((commit) => this.#onCommit(commit));
    this.#stops = [() => beats.unsubscribe(), () => link.unsubscribe(), () => watch.unsubscribe()];
    for (const { id } of store.all("manager")) this.#see(id);
    // A manager may have died between its first session and writing its own record.
    for (const { managerId } of store.all("session")) this.#see(managerId);
  }

  stop(): void {
    if (this.#stopped) return;
    this.#stopped = true;
    for (const stop of this.#stops) stop();
    for (const actor of this.#watched.values()) actor.stop();
    this.#watched.clear();
  }

  #onBeat(managerId: string | null): void {
    if (managerId === null) return;
    this.#watched.get(managerId)?.send({ type: "beat" });
  }

  #onCommit(commit: Commit): void {
    for (const change of commit.changes) {
      if (change.table === "session" && change.action !== "remove") this.#see(change.object.managerId);
      if (change.table !== "manager") continue;
      const { id, alive } = change.object;
      if (change.action === "remove") {
        this.#watched.get(id)?.stop();
        this.#watched.delete(id);
      } else if (this.#watched.has(id)) {
        if (alive && change.old?.alive !== true) this.#watched.get(id)?.send({ type: "record.alive" });
      } else this.#see(id);
    }
  }

  #see(managerId: string): void {
    const env = this.#env;
    if (managerId === "" || managerId === env.managerId || this.#watched.has(managerId)) return;
    const input = { managerId, isUp: env.bus.isUp() };
    const effects = { declareDead: () => this.#declareDead(managerId) };
    this.#watched.set(managerId, env.host.start(managerWatchMachine, `manager-watch/${managerId}`, input, { effects }));
  }

  #declareDead(managerId: string): void {
    const { store, proposer, telemetry } = this.#env;
    const manager = store.get("manager", managerId);
    if (manager?.alive === false) return;
    const hasSession =
      manager !== undefined || [...store.all("session")].some((session) => session.managerId === managerId);
    if (!hasSession) return;
    telemetry.log.warn({ manager: managerId }, "manager is silent: declaring it dead");
    // Replaces only the version seen: a manager that wrote its record just now is not dead.
    const operation =
      manager === undefined
        ? Operation.create({
            // Holding a session, it has read the log, whose level it therefore knows.
            create: StoreObject.create({
              manager: Manager.create({ id: managerId, alive: false, level: levelOf(store.get("format", formatId)) }),
            }),
          })
        : Operation.create({ update: StoreObject.create({ manager: Manager.patch(manager, { alive: false }) }) });
    // The chart retries a failed write; the outcome arrives through the store.
    void proposer.propose({ operations: [operation], mode: ProposeRequest_Mode.ATOMIC, timeoutMs: proposeTimeoutMs });
  }
}
