import test from "ava";
import type { FacadeSources } from "../../edges/juju/facade.ts";
import {
  Annotations,
  Service,
  ServiceSpec,
  Task,
  TaskAnswer,
  TaskCallEnd,
  TaskInputResponse,
  TaskState,
  TaskStatus,
} from "../../proto/gen/messages.ts";
import { RpcError, Status } from "../../runtime/rpc.ts";
import { workerNode } from "../support/control.ts";
import { failureOf, jsonWorld } from "../support/json-world.ts";
import type { TestManager } from "../support/manager.ts";

function seeded({ seed }: TestManager): void {
  const annotations = Annotations.create({ name: "web" });
  seed("node", workerNode("n1"));
  seed("service", Service.create({ id: "s1", spec: ServiceSpec.create({ annotations }) }));
  const fields = { serviceId: "s1", serviceAnnotations: annotations, nodeId: "n1", desiredState: TaskState.RUNNING };
  const status = TaskStatus.create({ state: TaskState.RUNNING });
  seed(
    "task",
    Task.create({ id: "t1", slot: 1, status, ...fields }),
    Task.create({ id: "t2", slot: 2, status, ...fields }),
  );
}

/** Drivers that print the command on one output and the task on the other; the second task's ends with 3. */
function drivers() {
  const closed: string[] = [];
  let abandoned = 0;
  const taskAccess: FacadeSources["taskAccess"] = {
    Call({ taskId, exec }, sink, { signal }) {
      const command = exec?.command ?? [];
      if (command.at(-1) === "refuse") throw new RpcError(Status.FAILED_PRECONDITION, "it cannot");
      sink.write(TaskAnswer.create({ callId: taskId }));
      signal.addEventListener("abort", () => void (abandoned += 1));
      if (command.at(-1) === "wait") return;
      const text = new TextEncoder();
      const long = command.at(-1) === "long" ? "x".repeat(600 * 1024) : command.join(" ");
      sink.write(TaskAnswer.create({ number: 1, stdout: text.encode(long), stderr: text.encode(taskId) }));
      sink.write(TaskAnswer.create({ number: 2, end: TaskCallEnd.create({ exitCode: taskId === "t2" ? 3 : 0 }) }));
      sink.end();
    },
    Send({ callId, close }) {
      if (close) closed.push(callId);
      return TaskInputResponse.create();
    },
  };
  return { taskAccess, closed, abandoned: () => abandoned };
}

test("commands are run in each unit of an application by a shell, whose input is closed", async (t) => {
  const { taskAccess, closed } = drivers();
  const { connect, manager } = await jsonWorld(t, { taskAccess });
  seeded(manager);
  const params = { commands: "ls -l", applications: ["web"] };
  const { actions } = await connect("V1").ask({ type: "Action", version: 7, request: "Run", params });
  t.like(actions, [
    {
      action: { receiver: "unit-web-0" },
      status: "completed",
      output: { "return-code": 0, stdout: "/bin/sh -c ls -l", stderr: "t1" },
    },
    { action: { receiver: "unit-web-1" }, status: "failed", output: { "return-code": 3 } },
  ]);
  t.deepEqual(closed, ["t1", "t2"]);
});

test("a client of 1.x gets the output as base64", async (t) => {
  const { connect, manager } = await jsonWorld(t, drivers());
  seeded(manager);
  const params = { Commands: "ls", Units: ["web/1"], Timeout: 1_000_000_000 };
  const { Results } = await connect("V0").ask({ type: "Client", request: "Run", params });
  t.like(Results, [{ UnitId: "web/1", Code: 3, Stderr: Buffer.from("t2").toString("base64"), Error: "" }]);
});

test("one unit that cannot does not fail the others, and what is too much output is cut", async (t) => {
  const { connect, manager } = await jsonWorld(t, drivers());
  seeded(manager);
  const { ask } = connect("V1");
  const run = (params: object) => ask({ type: "Action", version: 2, request: "Run", params });
  const { results } = (await run({ commands: "long", units: ["web/0", "web/9"] })) as {
    results: Record<string, never>[];
  };
  t.is((results[0]?.["output"] as { stdout: string } | undefined)?.stdout.length, 512 * 1024);
  t.regex(results[0]?.["message"] ?? "", /dropped/);
  t.like(results[1], { status: "error", error: { code: "not found" } });
  const refused = await run({ commands: "refuse", units: ["web/0"] });
  t.like(refused["results"], [{ error: { message: "it cannot", code: "operation is blocked" } }]);
});

test("what does not end in time is given up", async (t) => {
  const { taskAccess, abandoned } = drivers();
  const { connect, manager, settle } = await jsonWorld(t, { taskAccess });
  seeded(manager);
  const params = { commands: "wait", units: ["web/0"], timeout: 500_000_000 };
  const waiting = connect("V1").ask({ type: "Action", version: 7, request: "Run", params });
  await new Promise(setImmediate);
  await settle();
  t.like((await waiting)["actions"], [{ status: "error", error: { code: "deadline exceeded" } }]);
  t.is(abandoned(), 1);
});

test("who may only look runs nothing, and nothing runs on machines or nowhere", async (t) => {
  const { connect, manager } = await jsonWorld(t, drivers());
  seeded(manager);
  const run = { type: "Action", version: 7, request: "Run" };
  const reader = connect("V1", { kind: "user", name: "r", role: "read-only" });
  const code = async ({ ask }: typeof reader, params: object) => (await failureOf(() => ask({ ...run, params })))?.code;
  t.is(await code(reader, { commands: "ls", units: ["web/0"] }), "unauthorized access");
  const user = connect("V1");
  t.is(await code(user, { commands: "ls", machines: ["1"] }), "not supported");
  t.is(await code(user, { commands: "ls" }), "bad request");
  t.is(await code(user, { units: ["web/0"] }), "bad request");
});
