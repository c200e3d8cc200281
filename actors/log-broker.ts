/**
 * SwarmKit's LogBroker, as far as a worker needs it to stay connected: its stream of subscriptions stays open for the
 * life of its session. Nobody can subscribe yet, so every subscription id is unknown.
 */
import { PublishLogsResponse, type LogBrokerService, type SubscriptionMessage } from "../proto/gen/messages.ts";
import { checkPublish } from "../machines/log-publish.ts";
import { RpcError, Status, type CallContext, type ServiceHandlers, type Sink } from "../runtime/rpc.ts";
import type { Environment, Running } from "./environment.ts";

export interface LogBroker extends Running {
  readonly handlers: ServiceHandlers<typeof LogBrokerService>;
}

const statusOf = {
  invalid: Status.INVALID_ARGUMENT,
  unknown: Status.NOT_FOUND,
  foreign: Status.PERMISSION_DENIED,
} as const;

export function createLogBroker(env: Environment): LogBroker {
  const listeners = new Set<Sink<SubscriptionMessage>>();
  const gauge = env.telemetry.metrics.gauge(
    "muster_log_listeners",
    "Nodes that listen for log subscriptions at this manager.",
  );
  const isKnown = (): boolean => false;
  return {
    handlers: {
      ListenSubscriptions: (_, sink, call) => {
        callerOf(call);
        listeners.add(sink);
        gauge.set(listeners.size);
        const onAbort = (): void => {
          listeners.delete(sink);
          gauge.set(listeners.size);
        };
        if (call.signal.aborted) onAbort();
        else call.signal.addEventListener("abort", onAbort, { once: true });
      },
      PublishLogs: async (requests, call) => {
        const nodeId = callerOf(call);
        let subscriptionId: string | null = null;
        for await (const message of requests) {
          const verdict = checkPublish(message, { nodeId, subscriptionId }, isKnown);
          if (verdict.kind !== "accepted") throw new RpcError(statusOf[verdict.kind], verdict.message);
          subscriptionId = message.subscriptionId;
          if (message.close) break;
        }
        return PublishLogsResponse.create();
      },
    },
    stop: () => {
      for (const sink of listeners) sink.end(new RpcError(Status.UNAVAILABLE, "log broker is stopped"));
      listeners.clear();
    },
  };
}

function callerOf(call: CallContext): string {
  const { identity } = call.peer;
  if (identity !== null) return identity.nodeId;
  const why = "rpc error: code = PermissionDenied desc = no client certificates in request";
  throw new RpcError(Status.PERMISSION_DENIED, `Permission denied: unauthorized peer role: ${why}`);
}
