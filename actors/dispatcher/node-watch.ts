/**
 * The leader's watch over nodes without a session: those whose manager is dead, and those that are DOWN. It also watches the
 * managers, by their beats. It leaves sessions of other live managers alone: a change of leader disturbs no node.
 */
import {
  NodePatch,
  NodeStatus,
  NodeStatus_State,
  Operation,
  ProposeRequest_Mode,
  TaskState,
  TaskStatus,
  type Node,
  type Session,
} from "../../proto/gen/messages.ts";
import { durationMs, timeMs, timestampOf } from "../../proto/time.ts";
import type { Wait } from "../../machines/dispatcher/mass-down-breaker.machine.ts";
import { isDemoted } from "../../machines/manager/role.ts";
import { nodeWatchMachine, nodeWatchTimes, unknownGraceMs } from "../../machines/dispatcher/node-watch.machine.ts";
import { keptUntilMs } from "../../machines/orchestration/on-disconnect.ts";
import { moved } from "../../machines/task-moves.ts";
import { isHeld, observedState } from "../../machines/task.ts";
import { sessionTimes } from "../../machines/dispatcher/session.machine.ts";
import type { EffectsOf, HostedActor } from "../../runtime/host.ts";
import type { TimerHandle } from "../../runtime/ports/index.ts";
import type { Commit } from "../../runtime/store/store.ts";
import type { Environment, Running } from "../environment.ts";
import { startManagerWatch } from "../manager/manager-watch.ts";
import { sessionRemoval, type Verdict } from "./session.ts";

/** Timeout of proposals to the ledger, which is on this same manager, in milliseconds. */
const proposeTimeoutMs = 5_000;
/** Delay between attempts to move a dead manager's nodes to UNKNOWN, in milliseconds. */
const retryMs = 1_000;

interface NodeWatchOptions {
  /** The verdict of this manager's dispatcher. */
  verdict(wait: Wait): Verdict;
}

export function startNodeWatch(env: Environment, options: NodeWatchOptions): Running {
  return new NodeWatch(env, options);
}

class NodeWatch implements Running {
  readonly #env: Environment;
  readonly #options: NodeWatchOptions;
  readonly #watched = new Map<string, HostedActor<typeof nodeWatchMachine>>();
  readonly #stops: (() => void)[] = [];
  #retry: TimerHandle | null = null;
  #stopped = false;

  constructor(env: Environment, options: NodeWatchOptions) {
    this.#env = env;
    this.#options = options;
    const managers = startManagerWatch(env);
    const watch = env.store.watch((commit) => this.#onCommit(commit));
    this.#stops.push(
      () => managers.stop(),
      () => watch.unsubscribe(),
    );
    for (const node of env.store.all("node")) this.#lookAt(node);
    this.#doubtOrphanedSessions(env.store.all("session"));
  }

  stop(): void {
    if (this.#stopped) return;
    this.#stopped = true;
    for (const stop of this.#stops) stop();
    if (this.#retry !== null) this.#env.clock.clearTimeout(this.#retry);
    for (const actor of this.#watched.values()) actor.stop();
    this.#watched.clear();
  }

  #onCommit(commit: Commit): void {
    let hasLostManager = false;
    const sessions: Session[] = [];
    for (const change of commit.changes) {
      if (change.table === "node") {
        if (change.action === "remove") this.#settle(change.object.id);
        else this.#lookAt(change.object);
      } else if (change.table === "manager") {
        hasLostManager ||= change.action === "remove" || !change.object.alive;
      } else if (change.table === "session" && change.action !== "remove") {
        sessions.push(change.object);
      }
    }
    if (hasLostManager) this.#doubtOrphanedSessions(this.#env.store.all("session"));
    else if (sessions.length > 0) this.#doubtOrphanedSessions(sessions);
  }

  /** Watches the node according to its current state. */
  #lookAt(node: Node): void {
    const state = node.status?.state ?? NodeStatus_State.UNKNOWN;
    // A node that never registered waits for its first session, not for its next.
    const isUnknown = state === NodeStatus_State.UNKNOWN && node.description !== null;
    const isDown = state === NodeStatus_State.DOWN;
    if (!isUnknown && !isDown) {
      this.#settle(node.id);
      return;
    }
    const at = this.#env.clock.monotonic();
    const watched = this.#watched.get(node.id);
    if (watched !== undefined) {
      watched.send({ type: isDown ? "node.down" : "node.unknown", at });
      return;
    }
    // The node's last change is no earlier than its DOWN, so a new leader continues the wait of the last one.
    const elapsed = this.#env.clock.now() - changedMs(node) || 0;
    const input = {
      nodeId: node.id,
      at,
      isDown,
      unknownGraceMs: unknownGraceMs(this.#heartbeatPeriodMs(), this.#env.store.get("session", node.id) !== undefined),
      orphanMs: Math.min(nodeWatchTimes.orphanDelayMs, Math.max(0, nodeWatchTimes.orphanDelayMs - elapsed)),
    };
    const graceMs = input.unknownGraceMs;
    const effects: EffectsOf<typeof nodeWatchMachine> = {
      requestVerdict: ({ since }) => {
        const granted = this.#options.verdict({ since, graceMs }).kind === "granted";
        this.#watched.get(node.id)?.send({ type: granted ? "verdict.granted" : "verdict.held" });
      },
      declareDown: () => void this.#declareDown(node.id),
      orphanTasks: () => void this.#orphanTasks(node.id),
    };
    this.#watched.set(node.id, this.#env.host.start(nodeWatchMachine, `node-watch/${node.id}`, input, { effects }));
  }

  #settle(nodeId: string): void {
    const watched = this.#watched.get(nodeId);
    if (watched === undefined) return;
    this.#watched.delete(nodeId);
    watched.send({ type: "node.settled" });
    watched.stop();
  }

  /** Moves nodes with a session at a dead manager to UNKNOWN, unless they registered elsewhere meanwhile. */
  #doubtOrphanedSessions(sessions: Iterable<Session>): void {
    const { store } = this.#env;
    const operations: Operation[] = [];
    for (const { id, managerId, sessionId } of sessions) {
      const manager = store.get("manager", managerId);
      const node = store.get("node", id);
      // A manager without a record is only starting, or the manager watch has not missed it yet; unless it was demoted.
      const isGone = manager === undefined ? this.#isFormer(managerId) : !manager.alive;
      if (!isGone || node?.status?.state !== NodeStatus_State.READY) continue;
      const message = `Node moved to "unknown" state because its manager ${managerId} is gone`;
      const status = NodeStatus.create({ state: NodeStatus_State.UNKNOWN, message, addr: node.status.addr });
      operations.push(Operation.create({ node: NodePatch.create({ id, status }), sessionId }));
    }
    if (operations.length === 0) return;
    this.#env.telemetry.log.warn(
      { nodes: operations.length },
      "nodes of a dead manager are UNKNOWN until they register elsewhere",
    );
    void this.#propose(operations).then((written) => {
      if (written || this.#stopped || this.#retry !== null) return;
      this.#retry = this.#env.clock.setTimeout(() => {
        this.#retry = null;
        this.#doubtOrphanedSessions(store.all("session"));
      }, retryMs);
    });
  }

  /** Whether the node was a manager and no longer is. */
  #isFormer(managerId: string): boolean {
    const node = this.#env.store.get("node", managerId);
    return node !== undefined && isDemoted(node);
  }

  async #declareDown(nodeId: string): Promise<void> {
    const { store, telemetry } = this.#env;
    const node = store.get("node", nodeId);
    if (node === undefined || node.status?.state !== NodeStatus_State.UNKNOWN) return;
    telemetry.log.warn({ node: nodeId }, "node did not register with another manager: declaring it DOWN");
    const message = 'heartbeat failure for node in "unknown" state';
    const status = NodeStatus.create({ state: NodeStatus_State.DOWN, message, addr: node.status.addr });
    const patch = NodePatch.create({ id: nodeId, status });
    // Fenced by the old session: a node that registered just now is no longer UNKNOWN.
    const sessionId = store.get("session", nodeId)?.sessionId ?? "";
    const operations = [Operation.create({ node: patch, sessionId })];
    if (sessionId !== "") operations.push(Operation.create({ remove: sessionRemoval(nodeId), sessionId }));
    const written = await this.#propose(operations);
    if (!written || store.get("node", nodeId)?.status?.state === NodeStatus_State.UNKNOWN) {
      this.#watched.get(nodeId)?.send({ type: "write.failed" });
    }
  }

  async #orphanTasks(nodeId: string): Promise<void> {
    const { store, clock, managerId, telemetry, times } = this.#env;
    const operations: Operation[] = [];
    const now = timestampOf(clock.now());
    const world = { nowMs: clock.now(), times, nodeOf: (id: string) => store.get("node", id) };
    let areKept = false;
    for (const task of store.tasksByNode(nodeId)) {
      if (!isHeld(observedState(task))) continue;
      if (keptUntilMs(task, store.get("service", task.serviceId), world) !== null) {
        areKept = true;
        continue;
      }
      const orphaned = TaskStatus.create({
        timestamp: now,
        state: TaskState.ORPHANED,
        message: "node has been down for too long",
        appliedBy: managerId,
        appliedAt: now,
      });
      operations.push(moved(task, "manager", orphaned));
    }
    if (operations.length > 0)
      telemetry.log.warn(
        { node: nodeId, tasks: operations.length },
        "node has been DOWN for 24 h: its tasks are ORPHANED",
      );
    const written = operations.length === 0 || (await this.#propose(operations));
    const outcome = areKept ? "tasks.kept" : "tasks.orphaned";
    this.#watched.get(nodeId)?.send({ type: written ? outcome : "write.failed" });
  }

  async #propose(operations: readonly Operation[]): Promise<boolean> {
    const outcome = await this.#env.proposer.propose({
      operations,
      mode: ProposeRequest_Mode.EACH,
      timeoutMs: proposeTimeoutMs,
    });
    if (outcome.kind === "refused")
      this.#env.telemetry.log.error(
        { code: outcome.code, reason: outcome.message },
        "the ledger refused a write of the node watch",
      );
    return outcome.kind === "committed";
  }

  #heartbeatPeriodMs(): number {
    const [cluster] = this.#env.store.all("cluster");
    const ms = durationMs(cluster?.spec?.dispatcher?.heartbeatPeriod ?? null, 0);
    return ms >= 1 ? ms : sessionTimes.heartbeatPeriodMs;
  }
}

/** When the node last changed; NaN when unknown. */
function changedMs(node: Node): number {
  const at = node.meta?.updatedAt ?? null;
  return at === null ? Number.NaN : timeMs(at);
}
