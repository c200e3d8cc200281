/**
 * The Operator service: what the muster command asks beyond SwarmKit's API. It only passes on what others know, and asks
 * the leader for what only the leader knows.
 */
import { explainNetwork, explainNodeNetworks, nameOfNetwork } from "../machines/explain-network.ts";
import { taskName } from "../machines/list-filters.ts";
import {
  Certificate,
  IssuanceStatus,
  IssuanceStatus_State,
  NodePatch,
  Operation,
  Reason,
  RotateCertificateResponse,
  StatusResponse,
  WhyRequest,
  WhyResponse,
  type LeaderQuestion,
  type Network,
  type Node,
  type OperatorService,
  type Service,
  type Task,
} from "../proto/gen/messages.ts";
import type { Log } from "../runtime/ports.ts";
import { RpcError, Status, type ServiceHandlers } from "../runtime/rpc.ts";
import { transact } from "./control/write.ts";
import type { Environment } from "./environment.ts";
import { demandAnswer, type Asked } from "./leader-questions.ts";
import { controlRollout } from "./rollout-control.ts";
import { findVersion } from "./version-at.ts";

export interface OperatorSources {
  /** Asks the leader. */
  ask(question: Partial<LeaderQuestion>): Promise<Asked>;
  explainNode(node: Node): readonly Reason[];
  readonly log: Log;
  /** The present leader; null when none is known. */
  leader(): { readonly id: string; readonly epoch: number } | null;
  /** host:port that workers use. */
  readonly addr: string;
  /** What this NATS server cannot promise, in sentences. */
  warnings(): readonly string[];
  /** Whether a no-op went through log and replica lately, and how many milliseconds ago (-1: never). */
  health(): { readonly healthy: boolean; readonly progressAgeMs: number };
  /** Sessions of nodes that this manager holds. */
  sessions(): number;
}

type Subject =
  | { readonly kind: "task"; readonly object: Task; readonly name: string }
  | { readonly kind: "service"; readonly object: Service; readonly name: string }
  | { readonly kind: "node"; readonly object: Node; readonly name: string }
  | { readonly kind: "network"; readonly object: Network; readonly name: string };

export function createOperator(
  env: Environment,
  sources: OperatorSources,
): { readonly handlers: ServiceHandlers<typeof OperatorService> } {
  const { store } = env;

  function* subjects(): Iterable<Subject> {
    for (const object of store.all("service")) {
      yield { kind: "service", object, name: object.spec?.annotations?.name ?? "" };
    }
    for (const object of store.all("node")) yield { kind: "node", object, name: object.description?.hostname ?? "" };
    for (const object of store.all("network")) yield { kind: "network", object, name: nameOfNetwork(object) };
    for (const object of store.all("task")) yield { kind: "task", object, name: taskName(object) };
  }

  /** By id, then by name, then by unique prefix of an id; `web.2` also means the newest task of that slot. */
  function find(text: string): Subject {
    if (text === "")
      throw new RpcError(Status.INVALID_ARGUMENT, "say which task, service, node or network: its id or name");
    let named: Subject | null = null;
    let slot: Subject | null = null;
    const prefixed: Subject[] = [];
    for (const subject of subjects()) {
      if (subject.object.id === text) return subject;
      if (subject.name === text) named ??= subject;
      if (subject.object.id.startsWith(text)) prefixed.push(subject);
      // Tasks come in order of creation, so the last one is the newest.
      if (subject.kind === "task" && subject.name.startsWith(`${text}.`)) slot = subject;
    }
    const found = named ?? slot;
    if (found !== null) return found;
    if (prefixed.length > 1) {
      throw new RpcError(Status.INVALID_ARGUMENT, `${text} is ambiguous (${prefixed.length} matches found)`);
    }
    const only = prefixed[0];
    if (only === undefined) throw new RpcError(Status.NOT_FOUND, `no task, service, node or network is called ${text}`);
    return only;
  }

  async function reasonsFor(subject: Subject): Promise<readonly Reason[]> {
    if (subject.kind === "node") {
      const { object: node } = subject;
      const lacking = explainNodeNetworks(node, store.tasksByNode(node.id), store.all("network"));
      return [...sources.explainNode(node), ...lacking];
    }
    if (subject.kind === "network") {
      const [cluster] = store.all("cluster");
      const all = { networks: store.all("network"), services: store.all("service"), tasks: store.all("task") };
      return explainNetwork(subject.object, { ...all, nodes: store.all("node"), cluster });
    }
    const { kind, object } = subject;
    const asked = await sources.ask({ why: WhyRequest.create({ subject: `${kind}/${object.id}` }) });
    const since = object.meta?.updatedAt ?? null;
    if (asked.kind === "unanswered") {
      return [
        Reason.create({
          waitingFor: `the leader: ${asked.reason}`,
          since,
          wokenBy: asked.wokenBy,
          tried: kind === "task" ? lastWords(object) : [],
        }),
      ];
    }
    const { failure, why, leader } = asked.answer;
    if (why !== null) return why.reasons;
    const reason = failure === null ? "it answered something else" : failure.message;
    return [Reason.create({ waitingFor: `an answer of leader ${leader}: ${reason}`, since })];
  }

  return {
    handlers: {
      async Why({ subject: text }) {
        const subject = find(text);
        const { kind, name, object } = subject;
        return WhyResponse.create({ kind, id: object.id, name, reasons: await reasonsFor(subject) });
      },

      async PlanService(request) {
        return demandAnswer(await sources.ask({ planService: request }), "planService");
      },

      async PlanRebalance(request) {
        return demandAnswer(await sources.ask({ planRebalance: request }), "planRebalance");
      },

      async FindVersion({ time }) {
        if (time === null) throw new RpcError(Status.INVALID_ARGUMENT, "a time is required");
        return findVersion({ log: sources.log, clock: env.clock }, time);
      },

      ControlRollout: (request, call) => controlRollout(env, request, call),

      async RotateCertificate({ nodeId }, call) {
        await transact(env, call, () => {
          const node = store.get("node", nodeId);
          if (node === undefined) throw new RpcError(Status.NOT_FOUND, `node ${nodeId} not found`);
          if (node.certificate?.status?.state !== IssuanceStatus_State.ISSUED) {
            throw new RpcError(
              Status.FAILED_PRECONDITION,
              `node ${nodeId} has no certificate, or is renewing it already`,
            );
          }
          const certificate = Certificate.patch(node.certificate, {
            status: IssuanceStatus.create({ state: IssuanceStatus_State.ROTATE }),
          });
          return [Operation.create({ node: NodePatch.create({ id: nodeId, certificate }) })];
        });
        return RotateCertificateResponse.create();
      },

      Status() {
        const leader = sources.leader();
        const { healthy, progressAgeMs } = sources.health();
        let clusterId = "";
        for (const { id } of store.all("cluster")) clusterId = id;
        return StatusResponse.create({
          managerId: env.managerId,
          clusterId,
          leaderId: leader?.id ?? "",
          epoch: leader?.epoch ?? 0,
          applied: store.version,
          addr: sources.addr,
          warnings: sources.warnings(),
          sessions: sources.sessions(),
          progressAgeMs,
          healthy,
        });
      },
    },
  };
}

/** What the task's status says, as far as this manager's replica knows. */
function lastWords({ status }: Task): readonly string[] {
  return [status?.message ?? "", status?.err ?? ""].filter((text) => text !== "");
}
