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
import { RpcError, Status } from "../../runtime/ports/rpc.ts";
import { workerNode } from "../support/control.ts";
import { operationsMax, runningMax } from "../../edges/juju/facades/operations.ts";
import { failureOf, jsonWorld, type Asked, type Reply } from "../support/json-world.ts";
import type { TestManager } from "../support/manager.ts";

interface Client {
  ask(asked: Asked): Promise<Reply>;
}

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

/** Drivers that print the command on one stream and the task on the other; the second task's exits with 3. */
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

/** As newer clients do: starts it, and polls for the results by id until they are there. */
async function ran({ ask }: Client, params: object, version = 7): Promise<Reply[]> {
  const begun = await ask({ type: "Action", version, request: "Run", params });
  const entities = ((version === 7 ? begun["actions"] : begun["results"]) as Reply[]).map(({ action }) => ({
    tag: (action as { tag: string } | undefined)?.tag ?? "",
  }));
  for (;;) {
    const asked = await ask({ type: "Action", version, request: "Actions", params: { entities } });
    const results = asked["results"] as Reply[];
    if (results.every(({ status }) => status !== "running" && status !== "pending")) return results;
    await new Promise(setImmediate);
  }
}

test("commands run in each unit of an application in a shell, whose input is closed", async (t) => {
  const { taskAccess, closed } = drivers();
  const { connect, manager } = await jsonWorld(t, { taskAccess });
  seeded(manager);
  t.like(await ran(connect("V1"), { commands: "ls -l", applications: ["web"] }), [
    {
      action: { tag: "action-2", receiver: "unit-web-0", name: "juju-exec", parameters: { command: "ls -l" } },
      status: "completed",
      output: { "return-code": 0, stdout: "/bin/sh -c ls -l", stderr: "t1" },
    },
    { action: { tag: "action-3", receiver: "unit-web-1" }, status: "failed", output: { "return-code": 3 } },
  ]);
  t.deepEqual(closed, ["t1", "t2"]);
});

test("a command has an id at once, is listed and watched while it runs, survives its connection, and can be cancelled", async (t) => {
  const { taskAccess, abandoned } = drivers();
  const { connect, manager, feed, settle } = await jsonWorld(t, { taskAccess });
  seeded(manager);
  const { ask, resources } = connect("V1");
  const { ask: other } = connect("V1");
  const action = (request: string, params: object = {}) => ask({ type: "Action", version: 7, request, params });
  const begun = await action("Run", { commands: "wait", units: ["web/0", "web/9"] });
  t.like(begun, { operation: "operation-1" });
  t.like(begun["actions"], [
    { action: { tag: "action-2", receiver: "unit-web-0" } },
    { error: { message: 'unit "web/9" not found', code: "not found" } },
  ]);
  const entities = [{ tag: "action-2" }];
  t.like(await action("WatchActionsProgress", { entities }), { results: [{ "watcher-id": "1", changes: [] }] });
  t.like(await action("Actions", { entities }), { results: [{ status: "running" }] });
  t.like(feed.find("action", "2"), { receiver: "unit-web-0", status: "running", completed: "" });
  t.like(await action("ListOperations"), {
    results: [{ operation: "operation-1", status: "running" }],
    truncated: false,
  });
  t.deepEqual(await action("ListOperations", { units: ["web/1"] }), { results: [], truncated: false });
  resources.stopAll();
  t.is(abandoned(), 0, "another caller may ask for it");
  const results = await other({ type: "Action", version: 7, request: "Cancel", params: { entities } });
  t.like(results["results"], [{ status: "cancelled" }]);
  await settle();
  t.is(abandoned(), 1);
  const operation = await action("Operations", { entities: [{ tag: "operation-1" }, { tag: "operation-9" }] });
  t.like(operation["results"], [{ status: "cancelled" }, { error: { code: "not found" } }]);
  t.like(feed.find("action", "2"), { status: "cancelled" });
});

test("the number of retained finished operations, and of running commands, is limited", async (t) => {
  const { connect, manager, feed } = await jsonWorld(t, drivers());
  seeded(manager);
  const client = connect("V1");
  for (let n = 0; n <= operationsMax; n += 1) {
    const [result] = await ran(client, { commands: "ls", units: ["web/0"] });
    t.is(result?.["status"], "completed");
  }
  const ask = (tag: string) =>
    client.ask({ type: "Action", version: 7, request: "Actions", params: { entities: [{ tag }] } });
  t.like(await ask("action-2"), { results: [{ error: { code: "not found" } }] });
  t.like(await ask("action-4"), { results: [{ status: "completed" }] });
  t.is(feed.find("action", "2"), undefined);
  const wait = { type: "Action", version: 7, request: "Run", params: { commands: "wait", applications: ["web"] } };
  for (let n = 0; n < runningMax; n += 2) await client.ask(wait);
  t.is((await failureOf(() => client.ask(wait)))?.code, "try again");
});

test("a client of 1.x gets the output as base64", async (t) => {
  const { connect, manager } = await jsonWorld(t, drivers());
  seeded(manager);
  const params = { Commands: "ls", Units: ["web/1"], Timeout: 1_000_000_000 };
  const { Results } = await connect("V0").ask({ type: "Client", request: "Run", params });
  t.like(Results, [{ UnitId: "web/1", Code: 3, Stderr: Buffer.from("t2").toString("base64"), Error: "" }]);
});

test("one failing unit does not fail the others, and excess output is truncated", async (t) => {
  const { connect, manager } = await jsonWorld(t, drivers());
  seeded(manager);
  const client = connect("V1");
  const [long] = await ran(client, { commands: "long", units: ["web/0"] }, 2);
  t.is((long?.["output"] as { stdout: string } | undefined)?.stdout.length, 512 * 1024);
  t.regex(String(long?.["message"]), /dropped/);
  const [refused] = await ran(client, { commands: "refuse", units: ["web/0"] });
  t.like(refused, { status: "failed", message: "it cannot" });
});

test("a command that does not end in time is abandoned", async (t) => {
  const { taskAccess, abandoned } = drivers();
  const { connect, manager, settle } = await jsonWorld(t, { taskAccess });
  seeded(manager);
  const params = { commands: "wait", units: ["web/0"], timeout: 500_000_000 };
  const waiting = ran(connect("V1"), params);
  await new Promise(setImmediate);
  await settle();
  t.like(await waiting, [{ status: "failed", message: "the request did not finish within 0.5 s" }]);
  t.is(abandoned(), 1);
});

test("a user with read access runs nothing, and nothing runs on machines or on an empty target", async (t) => {
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
