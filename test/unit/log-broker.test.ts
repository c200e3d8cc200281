// The part of the LogBroker that a worker needs, and the answers of the Health service.
import test from "ava";
import { createHealth } from "../../actors/manager/health.ts";
import { createLogBroker } from "../../actors/logs/broker.ts";
import { checkPublish } from "../../machines/logs/publish.ts";
import {
  HealthCheckRequest,
  HealthCheckResponse_ServingStatus as ServingStatus,
  ListenSubscriptionsRequest,
  LogContext,
  LogMessage,
  PublishLogsMessage,
  type SubscriptionMessage,
} from "../../proto/gen/messages.ts";
import { publishedLines, type PublishedLines } from "../../proto/log-lines.ts";
import { Status } from "../../runtime/ports/rpc.ts";
import { call, collectedStream, refusalOf, testManager } from "../support/manager.ts";

const worker = call({ identity: { nodeId: "n1", role: "swarm-worker", organization: "c" }, local: false });

const unread = (message: PublishLogsMessage): PublishedLines =>
  publishedLines.decode(PublishLogsMessage.encode(message));

async function* stream(...messages: PublishLogsMessage[]): AsyncIterable<PublishedLines> {
  yield* messages.map(unread);
}

test("the stream of subscriptions stays open until the broker stops", (t) => {
  const broker = createLogBroker(testManager().env);
  const sink = collectedStream<SubscriptionMessage>();
  broker.handlers.ListenSubscriptions(ListenSubscriptionsRequest.create(), sink, worker);
  t.is(sink.ended, undefined);
  broker.stop();
  t.is(sink.ended?.code, Status.UNAVAILABLE);
});

test("output for an unknown subscription is rejected", async (t) => {
  const { PublishLogs } = createLogBroker(testManager().env).handlers;
  t.deepEqual(await refusalOf(() => PublishLogs(stream(PublishLogsMessage.create()), worker)), {
    code: Status.INVALID_ARGUMENT,
    message: "missing subscription ID",
  });
  t.deepEqual(await refusalOf(() => PublishLogs(stream(PublishLogsMessage.create({ subscriptionId: "x" })), worker)), {
    code: Status.NOT_FOUND,
    message: "unknown subscription ID",
  });
});

test("a node publishes for one subscription per stream, and only as itself", (t) => {
  const message = (subscriptionId: string, nodeId: string) =>
    PublishLogsMessage.create({
      subscriptionId,
      messages: [LogMessage.create({ context: LogContext.create({ nodeId }) })],
    });
  const check = (subscriptionId: string, nodeId: string, before: string | null) =>
    checkPublish(unread(message(subscriptionId, nodeId)), { nodeId: "n1", subscriptionId: before }, () => true).kind;
  t.is(check("a", "n1", null), "accepted");
  t.is(check("a", "n1", "a"), "accepted");
  t.is(check("b", "n1", "a"), "invalid");
  t.is(check("a", "n2", "a"), "foreign");
});

test("health means that the manager makes progress", async (t) => {
  let healthy = true;
  const { Check } = createHealth(() => healthy).handlers;
  const ask = async (service: string) => (await Check(HealthCheckRequest.create({ service }), worker)).status;
  t.is(await ask("Raft"), ServingStatus.SERVING);
  healthy = false;
  t.is(await ask(""), ServingStatus.NOT_SERVING);
  t.is((await refusalOf(() => ask("nonsense")))?.code, Status.NOT_FOUND);
});
