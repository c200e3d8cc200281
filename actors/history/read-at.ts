/**
 * Answers a read-only method as it would have been answered at an earlier version: the same handlers, over a rebuilt state and
 * with a clock stopped at that moment.
 *
 * A1: nothing is written: only read-only methods are allowed, and their environment has no access to the ledger.
 * A2: no join token of the past is shown: one that was not rotated since would let nodes join today.
 */
import { explainTaskVolumes, explainVolume, storedCsiView, type CsiView } from "../../machines/volumes/csi/explain.ts";
import { stampedTimes } from "../../machines/elapsed.ts";
import { explainService, explainTask, type ExplainView } from "../../machines/explain/explain.ts";
import { lazyNodeNames } from "../../machines/node-names.ts";
import { explainGlobal } from "../../machines/explain/global.ts";
import { withoutJoinTokens } from "../../machines/redaction.ts";
import { readScheduleStatus } from "../../machines/orchestration/jobs/runs.ts";
import { nodeWatchMachine } from "../../machines/dispatcher/node-watch.machine.ts";
import { taskMachine } from "../../machines/task.machine.ts";
import { waitOf } from "../../machines/wait-meta.ts";
import { timeMs } from "../../proto/time.ts";
import type { MethodDescriptor } from "../../proto/codec.ts";
import {
  ControlRolloutRequest,
  ControlService,
  GetClusterResponse,
  ListClustersResponse,
  ListExtensionsResponse,
  NodeStatus_State,
  OperatorService,
  ReadAtResponse,
  Reason,
  type Node,
  type ReadAtRequest,
} from "../../proto/gen/messages.ts";
import { ErrorCode } from "../../runtime/error-codes.ts";
import { RpcError, Status, type CallContext, type CallSignal } from "../../runtime/ports/rpc.ts";
import type { Replica } from "../../runtime/store/replica.ts";
import type { Store } from "../../runtime/store/store.ts";
import type { ControlHandlers } from "../control/handlers.ts";
import type { Environment } from "../environment.ts";
import { explainSubject } from "../explain-subject.ts";
import { controlRollout } from "../orchestration/rollout-control.ts";
import { whyRollout } from "../orchestration/rollout-view.ts";
import type { Moment } from "./moment.ts";
import { unreadable } from "./version-at.ts";

interface ReadAtParts {
  /** The state at that moment, which is read at once: it may be advanced later. Rejects with RpcError. */
  stateAt(moment: Moment, signal: CallSignal): Promise<Replica>;
  /** Control over another environment; `leaderId`: the leader at that time. */
  controlAt(env: Environment, leaderId: string): ControlHandlers;
}

type AnyMethod = MethodDescriptor<unknown, unknown>;
type Answerer = (past: PastEnvironment, request: unknown, call: CallContext) => unknown;

interface PastEnvironment {
  readonly env: Environment;
  readonly control: ControlHandlers;
}

interface Reading {
  readonly method: AnyMethod;
  readonly answer: Answerer;
}

/** Methods that may be called at an earlier version, by HTTP/2 path (A1). Join tokens are excluded (A2). */
const readings: ReadonlyMap<string, Reading> = new Map([
  ...Object.entries(ControlService.methods as unknown as Readonly<Record<string, AnyMethod>>)
    .filter(([name]) => /^(?:Get|List)/.test(name))
    .map(([name, method]): [string, Reading] => [
      method.path,
      {
        method,
        answer: ({ control }, request, call) =>
          (control as unknown as Readonly<Record<string, (request: unknown, call: CallContext) => unknown>>)[name]?.(
            request,
            call,
          ),
      },
    ]),
  reading(ControlService.methods.GetCluster, async ({ control }, request, call) => {
    const { cluster } = await control.GetCluster(request, call);
    return GetClusterResponse.create({ cluster: cluster === null ? null : withoutJoinTokens(cluster) });
  }),
  reading(ControlService.methods.ListClusters, async ({ control }, request, call) => {
    const { clusters } = await control.ListClusters(request, call);
    return ListClustersResponse.create({ clusters: clusters.map(withoutJoinTokens) });
  }),
  reading(OperatorService.methods.Why, ({ env }, { subject }) =>
    explainSubject(env.store, subject, {
      explainNode: (node) => whyNode(node),
      explainTask: (task) => [...explainTask(task, viewOf(env)), ...explainTaskVolumes(task, volumesOf(env))],
      explainService: (service) =>
        service.spec?.global == null ? explainService(service, viewOf(env)) : explainGlobal(service, viewOf(env)),
      explainVolume: (volume) => explainVolume(volume, volumesOf(env)),
    }),
  ),
  reading(OperatorService.methods.ListExtensions, ({ env }) =>
    ListExtensionsResponse.create({ extensions: [...env.store.all("extension")] }),
  ),
  reading(OperatorService.methods.ControlRollout, ({ env }, request, call) => {
    if (request.action !== ControlRolloutRequest.create({}).action) {
      throw new RpcError(Status.INVALID_ARGUMENT, "cannot change a rollout at an earlier version: it is read-only");
    }
    return controlRollout(env, request, call);
  }),
]);

function reading<Request, Response>(
  method: MethodDescriptor<Request, Response>,
  answer: (past: PastEnvironment, request: Request, call: CallContext) => Response | Promise<Response>,
): [string, Reading] {
  return [method.path, { method: method as unknown as AnyMethod, answer: answer as Answerer }];
}

/** The recorded status of a node; what its manager had in memory is not stored. */
function whyNode({ status, meta }: Node): readonly Reason[] {
  if (status?.state === NodeStatus_State.READY) return [];
  const names = new Map<number, string>(Object.entries(NodeStatus_State).map(([name, number]) => [number, name]));
  const state = (names.get(status?.state ?? 0) ?? "UNKNOWN").toLowerCase();
  const { waitingFor, wokenBy } = waitOf(nodeWatchMachine, "orphaned");
  return [
    Reason.create({
      waitingFor: `${waitingFor}: it was ${state}`,
      wokenBy,
      since: meta?.updatedAt ?? null,
      tried: [status?.message ?? ""].filter((text) => text !== ""),
    }),
  ];
}

function volumesOf({ store }: Environment): CsiView {
  return storedCsiView({
    volumes: () => store.all("volume"),
    volume: (id) => store.get("volume", id),
    node: (id) => store.get("node", id),
    nodes: () => store.all("node"),
  });
}

function viewOf({ store, clock }: Environment): ExplainView {
  return {
    nowMs: clock.now(),
    times: stampedTimes,
    service: (id) => store.get("service", id),
    node: (id) => store.get("node", id),
    slot: (serviceId, slot, nodeId) => [...store.tasksAt(serviceId, slot, nodeId)],
    tasks: (serviceId) => store.tasksByService(serviceId),
    nodes: () => store.all("node"),
    nodeName: lazyNodeNames(() => store.all("node")),
    schedule: (serviceId) => readScheduleStatus(store.get("resource", serviceId)),
    placement: ({ status }) => [
      Reason.create({
        ...waitOf(taskMachine, "PENDING"),
        since: status?.timestamp ?? null,
        tried: [status?.err ?? ""].filter((text) => text !== ""),
      }),
    ],
    rollout: (service) => whyRollout(store, service, clock.now(), stampedTimes),
  };
}

export function createReadAt(
  env: Environment,
  parts: ReadAtParts,
): (request: ReadAtRequest, call: CallContext) => Promise<ReadAtResponse> {
  const known = new WeakMap<Replica, { readonly version: number; readonly past: PastEnvironment }>();

  function environmentAt(replica: Replica): PastEnvironment {
    const before = known.get(replica);
    if (before?.version === replica.version) return before.past;
    const store: Store = replica;
    const past = pastEnvironment(env, store, timeMs(replica.time));
    const made = { env: past, control: parts.controlAt(past, replica.writer) };
    known.set(replica, { version: replica.version, past: made });
    return made;
  }

  return async ({ version, time, method, request }, call) => {
    const moment = time === null ? { version: version ?? 0 } : { time };
    if (time === null && version === null) throw new RpcError(Status.INVALID_ARGUMENT, "specify a version or a time");
    const found = method === "" ? null : readings.get(method);
    if (found === undefined) {
      throw new RpcError(Status.INVALID_ARGUMENT, `cannot call ${method} at an earlier version: it is not read-only`);
    }
    const replica = await parts.stateAt(moment, call.signal);
    const shown = { version: replica.version, time: replica.time };
    if (found === null) return ReadAtResponse.create(shown);
    let decoded: unknown;
    try {
      decoded = found.method.request.decode(request);
    } catch {
      throw new RpcError(Status.INVALID_ARGUMENT, `malformed request for ${method}`);
    }
    const response = await found.answer(environmentAt(replica), decoded, call);
    // The next caller may advance the state, and an answer that waited may have seen that (P1).
    if (replica.version !== shown.version) throw unreadable();
    return ReadAtResponse.create({ ...shown, response: found.method.response.encode(response) });
  };
}

/** A1: the clock stands still and nothing can be written. */
function pastEnvironment(env: Environment, store: Store, nowMs: number): Environment {
  const { clock } = env;
  return {
    ...env,
    store,
    clock: {
      now: () => nowMs,
      monotonic: () => clock.monotonic(),
      setTimeout: (callback, ms) => clock.setTimeout(callback, ms),
      clearTimeout: (timer) => clock.clearTimeout(timer),
      soon: (callback) => clock.soon(callback),
    },
    proposer: {
      propose: () =>
        Promise.resolve({ kind: "refused", code: ErrorCode.malformed, message: "cannot write to an earlier version" }),
    },
  };
}
