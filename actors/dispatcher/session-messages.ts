/** Builds SessionMessages, and resends them after changes: one per node for all changes of a batch. */
import type { Node, SessionMessage } from "../../proto/gen/messages.ts";
import { assignmentLimits } from "../../machines/dispatcher/assignments.machine.ts";
import {
  concernsAgent,
  sessionMessage,
  sharedPart,
  type SharedPart,
} from "../../machines/dispatcher/session-message.ts";
import { isSameBytes } from "../../machines/same-message.ts";
import type { TimerHandle } from "../../runtime/ports/index.ts";
import type { Environment, Running } from "../environment.ts";
import { Gossip } from "./gossip.ts";
import type { NodeSession } from "./session.ts";

export class SessionMessages implements Running {
  readonly #env: Environment;
  /** Own host:port, always listed. */
  readonly #addr: string;
  readonly #sessions: ReadonlyMap<string, NodeSession>;
  #shared: SharedPart;
  readonly #gossip: Gossip;
  /** Nodes to send to at the end of the batch; "all" when the shared part changed. */
  #untold: Set<string> | "all" = new Set();
  #timer: TimerHandle | null = null;

  constructor(env: Environment, addr: string, sessions: ReadonlyMap<string, NodeSession>) {
    this.#env = env;
    this.#addr = addr;
    this.#sessions = sessions;
    this.#shared = this.#readShared();
    this.#gossip = new Gossip(env, (nodeId) => this.#tell(nodeId));
  }

  /** To be called when a new registration of the node begins. */
  introduce(nodeId: string): void {
    this.#gossip.introduce(nodeId);
  }

  /** Null when the node was removed. */
  make(session: NodeSession): SessionMessage | null {
    const node = this.#env.store.get("node", session.nodeId);
    if (node === undefined) return null;
    return sessionMessage(session.sessionId, node, this.#shared, this.#gossip.seeds(node, this.#shared.hosts));
  }

  /** To be called for any node of the cluster, whichever manager holds its session. */
  onAnyNode(node: Node | null, old: Node | null): void {
    this.#gossip.onNode(node, old);
  }

  /** To be called for a node whose session is here. */
  onNode(node: Node, old: Node | null): void {
    if (old === null || concernsAgent(old, node)) this.#tell(node.id);
  }

  /** To be called when the managers or the cluster object changed. */
  onShared(): void {
    const shared = this.#readShared();
    if (isSameBytes(shared.bytes, this.#shared.bytes)) return;
    this.#shared = shared;
    this.#tell("all");
  }

  stop(): void {
    if (this.#timer !== null) this.#env.clock.clearTimeout(this.#timer);
    this.#timer = null;
    this.#gossip.stop();
  }

  #tell(whom: string): void {
    if (whom === "all") this.#untold = "all";
    else if (this.#untold !== "all") this.#untold.add(whom);
    this.#timer ??= this.#env.clock.setTimeout(() => this.#send(), assignmentLimits.batchMs);
  }

  #send(): void {
    this.#timer = null;
    const untold = this.#untold;
    this.#untold = new Set();
    for (const nodeId of untold === "all" ? this.#sessions.keys() : untold) this.#sessions.get(nodeId)?.sendMessage();
  }

  #readShared(): SharedPart {
    const { store, managerId, telemetry } = this.#env;
    const [cluster] = store.all("cluster");
    const shared = sharedPart({ id: managerId, addr: this.#addr }, store.all("manager"), cluster);
    const keys = cluster?.networkBootstrapKeys.length ?? 0;
    if (keys > 0 && shared.keys.length === 0) {
      telemetry.log.error(
        { keys },
        "the cluster does not have three network keys per subsystem: not sending them, since engines would crash",
      );
    }
    return shared;
  }
}
