/** A manager served on a control socket, and the muster command run against it in this process. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { ExecutionContext } from "ava";
import { bootstrapCluster } from "../../actors/manager/bootstrap.ts";
import { createControl } from "../../actors/control.ts";
import { createHistory } from "../../actors/history/history.ts";
import { askLeader, type LeaderKnowledge } from "../../actors/leader-questions.ts";
import { createOperator } from "../../actors/operator.ts";
import { startRebalance } from "../../actors/orchestration/rebalance.ts";
import { answerPlan } from "../../actors/orchestration/service-plan.ts";
import { createUsers } from "../../actors/json/users.ts";
import { createWatch } from "../../actors/watch/watch.ts";
import { run } from "../../cli/run.ts";
import { processShell, type Shell } from "../../cli/shell.ts";
import { createGrpcServer } from "../../edges/grpc/server.ts";
import {
  ControlService,
  Node,
  NodeDescription,
  NodeSpec,
  NodeStatus,
  NodeStatus_State,
  OperatorService,
  Reason,
  Task,
  TaskState,
  TaskStatus,
  Timestamp,
  UsersService,
  Version,
  WatchService,
  type Service,
} from "../../proto/gen/messages.ts";
import * as pki from "../../lib/pki/index.ts";
import { Scrypt } from "../../runtime/system/scrypt.ts";
import { testManager, type TestManager } from "./manager.ts";
import { retainedOf, type TestLog } from "./retained.ts";

export interface Ran {
  readonly status: number;
  /** Lines of standard output. */
  readonly lines: readonly string[];
  /** Lines of standard error. */
  readonly remarks: readonly string[];
}

export interface Served {
  readonly manager: TestManager;
  readonly retained: TestLog;
  readonly socket: string;
  readonly muster: (...args: readonly string[]) => Promise<Ran>;
  /** The callback gets each line of either output while the command runs. */
  readonly musterWith: (onLine: (line: string) => void, ...args: readonly string[]) => Promise<Ran>;
}

interface ServedOptions {
  /** Width of the terminal that commands print to; null: no terminal. */
  readonly width?: number | null;
}

export async function served(t: ExecutionContext, { width = null }: ServedOptions = {}): Promise<Served> {
  const manager = testManager();
  const { env } = manager;
  await bootstrapCluster(env, pki, { advertise: "192.0.2.1:2377" });
  const server = createGrpcServer({ telemetry: env.telemetry });
  server.add(ControlService, createControl(env, { leaderId: () => "manager1", authority: pki }).handlers);
  const retained = retainedOf(manager);
  server.add(WatchService, createWatch(env, retained).handlers);
  const reasons = [
    Reason.create({
      waitingFor: "a node",
      wokenBy: "node.ready",
      since: Timestamp.create({ seconds: 10 }),
      tried: ["n1: full"],
    }),
  ];
  const knowledge: LeaderKnowledge = {
    explainTask: () => reasons,
    explainService: () => [],
    explainVolume: () => [],
    planService: (request) => answerPlan(env, request),
    planRebalance: (request) => {
      const rebalance = startRebalance(env);
      const plan = rebalance.plan(request);
      rebalance.stop();
      return plan;
    },
  };
  const history = createHistory(env, {
    log: retained.log,
    blobs: retained.blobs,
    controlAt: (past, leaderId) => createControl(past, { leaderId: () => leaderId, authority: pki }).handlers,
  });
  t.teardown(() => history.stop());
  server.add(
    OperatorService,
    createOperator(env, {
      ask: (question) => askLeader(env, { own: () => knowledge, leader: () => "manager1" }, question),
      explainNode: () => [],
      sessionState: (nodeId) => (nodeId === "held" ? "serving.connected" : ""),
      log: retained.log,
      history,
      leader: () => ({ id: "manager1", epoch: 1 }),
      addr: "192.0.2.1:2377",
      warnings: () => [],
      troubles: () => [],
      health: () => ({ healthy: true, progressAgeMs: 0 }),
      sessions: () => 0,
      askClock: () => Promise.reject(new Error("it is down")),
    }).handlers,
  );
  server.add(UsersService, createUsers(env, new Scrypt({ cost: 16, blockSize: 8, parallelism: 1 })).handlers);
  const folder = mkdtempSync(join(tmpdir(), "muster-"));
  const socket = join(folder, "control.sock");
  await server.listenUnix(socket);
  t.teardown(async () => {
    await server.close(0);
    rmSync(folder, { recursive: true, force: true });
  });

  async function musterWith(onLine: (line: string) => void, ...args: readonly string[]): Promise<Ran> {
    const lines: string[] = [];
    const remarks: string[] = [];
    const shellAt = (host: string): Shell => ({
      ...processShell(host),
      print: (text) => {
        for (const line of text.split("\n")) {
          lines.push(line);
          onLine(line);
        }
      },
      write: (data, to) => {
        for (const line of new TextDecoder().decode(data).replace(/\n$/, "").split("\n")) {
          (to === "out" ? lines : remarks).push(line);
          onLine(line);
        }
        return null;
      },
      remark: (text) => {
        remarks.push(text);
        onLine(text);
      },
      isInteractive: false,
      width,
      now: () => env.clock.now(),
      at: shellAt,
    });
    return { status: await run(args, shellAt(socket)), lines, remarks };
  }

  return { manager, retained, socket, musterWith, muster: (...args) => musterWith(() => undefined, ...args) };
}

export function readyNode(id: string, hostname: string): Node {
  return Node.create({
    id,
    spec: NodeSpec.create({ membership: 1 }),
    description: NodeDescription.create({ hostname }),
    status: NodeStatus.create({ state: NodeStatus_State.READY }),
  });
}

/** A copy of the service's task in its current state. */
export function taskOf(
  service: Service,
  slot: number,
  nodeId: string,
  state: TaskState,
  fields: Partial<Task> = {},
): Task {
  return Task.create({
    id: `${service.id.slice(0, 20)}t${slot}`,
    slot,
    nodeId,
    serviceId: service.id,
    spec: service.spec?.task ?? null,
    specVersion: service.specVersion ?? Version.create({}),
    serviceAnnotations: service.spec?.annotations ?? null,
    desiredState: TaskState.RUNNING,
    status: TaskStatus.create({ state, timestamp: Timestamp.create({ seconds: 1_767_225_600 }) }),
    ...fields,
  });
}
