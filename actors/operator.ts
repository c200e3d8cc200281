/**
 * The Operator service: the muster command's calls beyond SwarmKit's API. It forwards them to their sources, and to the leader
 * what only the leader can answer.
 */
import {
  Certificate,
  IssuanceStatus,
  IssuanceStatus_State,
  LogCopies,
  ManagerPlace,
  ListExtensionsResponse,
  NodePatch,
  Operation,
  Reason,
  RotateCertificateResponse,
  StatusResponse,
  WhyRequest,
  WhyResponse,
  type LeaderQuestion,
  type Node,
  type OperatorService,
  type Service,
  type Task,
  type Trouble,
  type Volume,
} from "../proto/gen/messages.ts";
import type { Log } from "../runtime/ports/index.ts";
import { explainTroubles } from "../machines/explain/troubles.ts";
import { RpcError, Status, type ServiceHandlers } from "../runtime/ports/rpc.ts";
import { transact } from "./control/write.ts";
import { formatId, levelOf } from "../proto/format-level.ts";
import { timestampOf } from "../proto/time.ts";
import { compareClocks, type AskClock } from "./manager/compare-clocks.ts";
import type { Environment } from "./environment.ts";
import { explainSubject } from "./explain-subject.ts";
import { demandPast } from "./history/moment.ts";
import type { HistoryPort } from "./history/history.ts";
import { demandAnswer, type Asked } from "./leader-questions.ts";
import { controlRollout } from "./orchestration/rollout-control.ts";
import { searchesWaitingMax, Turns } from "./history/turns.ts";
import { findVersion } from "./history/version-at.ts";

export interface OperatorSources {
  /** Asks the leader. */
  ask(question: Partial<LeaderQuestion>): Promise<Asked>;
  explainNode(node: Node): readonly Reason[];
  /** State of the node's session; empty when this manager does not hold it. */
  sessionState(nodeId: string): string;
  readonly log: Log;
  readonly history: HistoryPort;
  /** The current leader; null when unknown. */
  leader(): { readonly id: string; readonly epoch: number } | null;
  /** host:port for workers. */
  readonly addr: string;
  /** Guarantees that this NATS server lacks, in sentences. */
  warnings(): readonly string[];
  /** This manager's troubles, causes first. */
  troubles(): readonly Trouble[];
  /** Whether a no-op recently went through log and replica, and how many milliseconds ago (-1: never). */
  health(): { readonly healthy: boolean; readonly progressAgeMs: number };
  readonly askClock: AskClock;
  /** Number of node sessions that this manager holds. */
  sessions(): number;
  /** Copies of the log; null while nothing answers for it. Absent: there is nothing to count. */
  copies?(): Promise<{ readonly wanted: number; readonly current: number } | null>;
}

export function createOperator(
  env: Environment,
  sources: OperatorSources,
): { readonly handlers: ServiceHandlers<typeof OperatorService> } {
  const { store } = env;

  async function askAbout(
    kind: "task" | "service" | "volume",
    object: Task | Service | Volume,
  ): Promise<readonly Reason[]> {
    const asked = await sources.ask({ why: WhyRequest.create({ subject: `${kind}/${object.id}` }) });
    const since = object.meta?.updatedAt ?? null;
    if (asked.kind === "unanswered") {
      return [
        Reason.create({
          waitingFor: `the leader: ${asked.reason}`,
          since,
          wokenBy: asked.wokenBy,
          tried: "status" in object ? lastWords(object) : [],
        }),
      ];
    }
    const { failure, why, leader } = asked.answer;
    if (why !== null) return why.reasons;
    const reason = failure === null ? "it answered a different question" : failure.message;
    return [Reason.create({ waitingFor: `an answer of leader ${leader}: ${reason}`, since })];
  }

  const searches = new Turns(searchesWaitingMax);
  return {
    handlers: {
      // This manager's troubles come first: all other reasons depend on them.
      async Why({ subject }) {
        const found = await explainSubject(store, subject, {
          explainNode: (node) => sources.explainNode(node),
          explainTask: (task) => askAbout("task", task),
          explainService: (service) => askAbout("service", service),
          explainVolume: (volume) => askAbout("volume", volume),
        });
        const reasons = [...explainTroubles(sources.troubles()), ...found.reasons];
        const session = found.kind === "node" ? sources.sessionState(found.id) : "";
        return WhyResponse.patch(found, { reasons, session });
      },

      async PlanService(request) {
        return demandAnswer(await sources.ask({ planService: request }), "planService");
      },

      async PlanRebalance(request) {
        return demandAnswer(await sources.ask({ planRebalance: request }), "planRebalance");
      },

      async FindVersion({ time }, { signal }) {
        if (time === null) throw new RpcError(Status.INVALID_ARGUMENT, "a time is required");
        demandPast(env, time);
        return searches.take(() => findVersion({ log: sources.log, clock: env.clock }, time), signal);
      },

      ReadAt: (request, call) => sources.history.readAt(request, call),

      History: (request, sink, call) => sources.history.stream(request, sink, call),

      ListExtensions: () => ListExtensionsResponse.create({ extensions: [...store.all("extension")] }),

      CompareClocks: () => compareClocks(env, sources.askClock),

      ControlRollout: (request, call) => controlRollout(env, request, call),

      async RotateCertificate({ nodeId }, call) {
        await transact(env, call, () => {
          const node = store.get("node", nodeId);
          if (node === undefined) throw new RpcError(Status.NOT_FOUND, `node ${nodeId} not found`);
          if (node.certificate?.status?.state !== IssuanceStatus_State.ISSUED) {
            throw new RpcError(
              Status.FAILED_PRECONDITION,
              `node ${nodeId} has no certificate, or is already renewing it`,
            );
          }
          const certificate = Certificate.patch(node.certificate, {
            status: IssuanceStatus.create({ state: IssuanceStatus_State.ROTATE }),
          });
          return [Operation.create({ node: NodePatch.create({ id: nodeId, certificate }) })];
        });
        return RotateCertificateResponse.create();
      },

      async Status(_request, { peer }) {
        const copies = (await sources.copies?.()) ?? null;
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
          troubles: sources.troubles(),
          logCopies: copies === null ? null : LogCopies.create(copies),
          callerRole: peer.role ?? "admin",
          callerName: peer.user?.slice("user-".length) ?? "",
          answeredAt: timestampOf(env.clock.now()),
          level: levelOf(store.get("format", formatId)),
          managers: [...store.all("manager")].map(({ addr, addresses, id }) =>
            ManagerPlace.create({ id, addr, addresses }),
          ),
        });
      },
    },
  };
}

/** The messages of the task's status in this manager's replica. */
function lastWords({ status }: Task): readonly string[] {
  return [status?.message ?? "", status?.err ?? ""].filter((text) => text !== "");
}
