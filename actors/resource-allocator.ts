/**
 * SwarmKit's ResourceAllocator: an engine requests an address for a container that no service owns (`docker run --network`),
 * and releases it.
 */
import { timestampOf } from "../proto/time.ts";
import { observedState } from "../machines/task.ts";
import { attachmentTask, checkAttach, checkDetach } from "../machines/validation/attachment.ts";
import { invalid } from "../machines/refusal.ts";
import {
  AttachNetworkResponse,
  DetachNetworkResponse,
  NetworkAttachmentConfig,
  TaskState,
  type ResourceAllocatorService,
} from "../proto/gen/messages.ts";
import { WriteBudget } from "../machines/write-budget.ts";
import { newId } from "../runtime/ids.ts";
import { RpcError, Status, type CallContext, type ServiceHandlers, type CallSignal } from "../runtime/ports/rpc.ts";
import { demand, rejection } from "./control/answer.ts";
import { commit, creation, removal } from "./control/write.ts";
import type { Environment } from "./environment.ts";

/**
 * How long an answer waits for the address, in milliseconds. An engine abandons a container after 20 s and then releases only
 * attachments whose id it has, so the id must have arrived by then.
 */
const allocationMsMax = 5_000;

/** Budget per node: a thousand containers in a burst, such as those of a restarting engine, and then 16 a second. */
const attachBudget = { bytesMax: 1_024 * 1_024, bytesPerS: 16 * 1_024 };
/** About what an attachment writes besides the request, in bytes. */
const attachBytes = 1_024;

type Allocated = { readonly kind: "allocated" | "later" } | { readonly kind: "refused"; readonly reason: string };

export function createResourceAllocator(env: Environment): {
  readonly handlers: ServiceHandlers<typeof ResourceAllocatorService>;
} {
  const { store, clock } = env;
  const random = env.random.fork("resource-allocator");
  const budget = new WriteBudget(attachBudget);

  /** Waits until the task has its address, or its status says why it gets none. */
  function allocated(taskId: string, signal: CallSignal): Promise<Allocated> {
    return new Promise((resolve) => {
      const look = (): Allocated | null => {
        const task = store.get("task", taskId);
        if (task === undefined) return { kind: "refused", reason: `attachment ${taskId} was removed` };
        if (observedState(task) > TaskState.NEW) return { kind: "allocated" };
        const reason = task.status?.err ?? "";
        return reason === "" ? null : { kind: "refused", reason };
      };
      const end = (outcome: Allocated): void => {
        clock.clearTimeout(timer);
        watching.unsubscribe();
        signal.removeEventListener("abort", onAbort);
        resolve(outcome);
      };
      const onAbort = (): void => end({ kind: "refused", reason: "the caller cancelled" });
      const timer = clock.setTimeout(() => end({ kind: "later" }), allocationMsMax);
      const watching = store.watch(() => {
        const outcome = look();
        if (outcome !== null) end(outcome);
      });
      signal.addEventListener("abort", onAbort);
      const outcome = signal.aborted ? { kind: "refused" as const, reason: "the caller cancelled" } : look();
      if (outcome !== null) end(outcome);
    });
  }

  return {
    handlers: {
      async AttachNetwork({ config, containerId }, call) {
        const nodeId = callerOf(call);
        if (config === null || config.target === "") throw rejection(invalid("invalid argument"));
        const network = store.get("network", config.target) ?? store.byName("network", config.target);
        demand(checkAttach(network, config.target));
        const bytes = attachBytes + NetworkAttachmentConfig.encode(config).length;
        if (!budget.take(nodeId, Math.min(bytes, attachBudget.bytesMax), clock.monotonic()))
          throw new RpcError(Status.UNAVAILABLE, `node ${nodeId} exceeded rate limit of network attachments`);
        const id = newId(random);
        const task = attachmentTask({
          id,
          nodeId,
          containerId,
          networkId: network?.id ?? "",
          addresses: config.addresses,
          now: timestampOf(clock.now()),
        });
        await commit(env, call, creation("task", task));
        const outcome = await allocated(id, call.signal);
        if (outcome.kind !== "refused") return AttachNetworkResponse.create({ attachmentId: id });
        // No other party knows of the task.
        await commit(env, call, removal("task", id)).catch(ignoreGone);
        throw new RpcError(Status.FAILED_PRECONDITION, outcome.reason);
      },

      async DetachNetwork({ attachmentId }, call) {
        const nodeId = callerOf(call);
        if (attachmentId === "") throw rejection(invalid("invalid argument"));
        demand(checkDetach(store.get("task", attachmentId), attachmentId, nodeId));
        await commit(env, call, removal("task", attachmentId)).catch(ignoreGone);
        return DetachNetworkResponse.create();
      },
    },
  };
}

function ignoreGone(error: unknown): void {
  if (!(error instanceof RpcError) || error.code !== Status.NOT_FOUND) throw error;
}

function callerOf(call: CallContext): string {
  const { identity } = call.peer;
  if (identity !== null) return identity.nodeId;
  const why = "rpc error: code = PermissionDenied desc = no client certificates in request";
  throw new RpcError(Status.PERMISSION_DENIED, `Permission denied: unauthorized peer role: ${why}`);
}
