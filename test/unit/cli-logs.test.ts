// Lines of task output are printed as Docker's command line prints them.
import test from "ava";
import { lineText, originText, outputOf, timestampText, type LineFormat } from "../../cli/log-lines.ts";
import { LogAttr, LogContext, LogMessage, LogStream, TaskState, Timestamp } from "../../proto/gen/messages.ts";
import { readyNode, served, taskOf } from "../support/served.ts";

const plain: LineFormat = {
  timestamps: false,
  details: false,
  raw: false,
  noTrunc: false,
  noTaskIds: false,
  slotWidth: 1,
};
const id = "abcdefghijklmnopqrstuvwxy";
const origin = { serviceName: "web", nodeName: "host1", slot: 2 };
const message = LogMessage.create({
  context: LogContext.create({ taskId: id, serviceId: "s1", nodeId: "n1" }),
  timestamp: Timestamp.create({ seconds: 1_767_225_600, nanos: 5_000 }),
  stream: LogStream.LOG_STREAM_STDERR,
  data: Buffer.from("hello\n"),
  attrs: [LogAttr.create({ key: "b", value: "x y" }), LogAttr.create({ key: "a", value: "1" })],
});
const text = (format: Partial<LineFormat>): string =>
  Buffer.from(lineText(message, originText(id, origin, { ...plain, ...format }), { ...plain, ...format })).toString();

test("a line begins with its task and its node", (t) => {
  t.is(text({}), "web.2.abcdefghijkl@host1    | hello\n");
  t.is(text({ noTrunc: true }), `web.2.${id}@host1    | hello\n`);
  t.is(text({ noTaskIds: true }), "web.2@host1    | hello\n");
  t.is(text({ slotWidth: 3 }), "web.2.abcdefghijkl@host1      | hello\n");
});

test("times come first, then the task, then details, then the line", (t) => {
  t.is(timestampText(message.timestamp), "2026-01-01T00:00:00.000005000Z");
  t.is(
    text({ timestamps: true, details: true }),
    "2026-01-01T00:00:00.000005000Z web.2.abcdefghijkl@host1    | a=1,b=x%20y hello\n",
  );
});

test("raw lines are printed unchanged; with details they include the ids", (t) => {
  t.is(text({ raw: true }), "hello\n");
  t.is(
    text({ raw: true, details: true }),
    `a=1,b=x%20y,com.docker.swarm.node.id=n1,com.docker.swarm.service.id=s1,com.docker.swarm.task.id=${id} hello\n`,
  );
});

test("a removed task is named by its service and id", (t) => {
  t.is(originText(id, { ...origin, slot: null }, { ...plain, noTaskIds: true }), "web.abcdefghijkl@host1");
});

test("standard error goes to standard error", (t) => {
  t.is(outputOf(LogStream.LOG_STREAM_STDOUT), "out");
  t.is(outputOf(LogStream.LOG_STREAM_STDERR), "err");
});

test("unreadable logs and contradictory flags are reported in one sentence", async (t) => {
  const { manager, muster } = await served(t);
  await muster("service", "create", "-d", "--name", "web", "--tty", "nginx");
  manager.seed("node", readyNode("n1", "host1"));
  const service = manager.store.byName("service", "web");
  if (service === undefined) return t.fail();
  manager.seed("task", taskOf(service, 1, "n1", TaskState.RUNNING));
  const said = async (...args: readonly string[]): Promise<readonly [number, string]> => {
    const { remarks, status } = await muster("service", "logs", ...args);
    return [status, remarks.join("\n")];
  };
  t.deepEqual(await said("nobody"), [1, "muster: no such task or service: nobody"]);
  t.deepEqual(await said("web"), [1, "muster: tty service logs only supported with --raw"]);
  t.deepEqual(await said("--tail", "-5", "web"), [
    125,
    `muster: invalid argument "-5" for "--tail" flag: expected a number of lines or 'all'`,
  ]);
  t.deepEqual(await said("--since", "2026-99-01", "web"), [
    125,
    'muster: invalid argument "2026-99-01" for "--since" flag: expected a time such as 2026-01-02T15:04:05Z',
  ]);
  t.is((await said("--since", "yesterday", "web"))[0], 125);
});
