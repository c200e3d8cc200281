/** Client of a driver plugin's services. */
import {
  BasePluginService,
  CapabilitiesRequest,
  ConfigSchemaRequest,
  DestroyTaskRequest,
  DriverService,
  ExecTaskRequest,
  FingerprintRequest,
  InitRequest,
  InspectTaskRequest,
  OpaqueRecoverTaskRequest,
  OpaqueStartTaskResponse,
  PluginInfoRequest,
  type RecoverTaskResponse,
  ShutdownRequest,
  SignalTaskRequest,
  StartTaskRequest,
  StartTaskResponse_Result,
  StopTaskRequest,
  TaskAttachRequest,
  TaskCommandRequest,
  TaskCommandsService,
  TaskConfigSchemaRequest,
  TaskEventsRequest,
  TaskStatsRequest,
  WaitTaskRequest,
  type ExecTaskStreamingRequest,
  type ExecTaskStreamingResponse,
  type TaskStats,
} from "../../../proto/gen/nomad.ts";
import { durationOf } from "../../../proto/nomad-time.ts";
import type { MethodDescriptor } from "../../../proto/codec.ts";
import type { DriverClient, StreamReceiver } from "../../../runtime/ports/plugins.ts";
import { RpcError, Status, type DuplexChannel, type ReceivingCall } from "../../../runtime/ports/rpc.ts";
import { recoverableError } from "../../../runtime/recoverable.ts";

/** Timeout of calls that need no work, such as the plugin's info, capabilities and config schema, in milliseconds. */
const questionTimeoutMs = 10_000;
/** Timeout of SetConfig and Init, in milliseconds: a driver may inspect the machine first. */
const configureTimeoutMs = 30_000;
/** Timeout of Shutdown, in milliseconds: Nomad's. */
const shutdownTimeoutMs = 2_000;
/** Timeout of an exec without one, in milliseconds: Go plugins take 0 for an expired deadline. */
const execTimeoutMs = 30_000;

/** StartTask on the wire, with the handle as its bytes. */
const startTaskMethod: MethodDescriptor<StartTaskRequest, OpaqueStartTaskResponse> = {
  ...DriverService.methods.StartTask,
  response: OpaqueStartTaskResponse,
};
const recoverTaskMethod: MethodDescriptor<OpaqueRecoverTaskRequest, RecoverTaskResponse> = {
  ...DriverService.methods.RecoverTask,
  request: OpaqueRecoverTaskRequest,
};

/** Null if the plugin is older than the method. */
async function ifOffered<Answer>(call: Promise<Answer>): Promise<Answer | null> {
  try {
    return await call;
  } catch (error) {
    if (error instanceof RpcError && error.code === Status.UNIMPLEMENTED) return null;
    throw error;
  }
}

export function driverClient(channel: DuplexChannel): DriverClient {
  const base = BasePluginService.methods;
  const { methods } = DriverService;
  return {
    pluginInfo: () => channel.unary(base.PluginInfo, PluginInfoRequest.create(), { timeoutMs: questionTimeoutMs }),
    configSchema: async () => {
      const answer = await channel.unary(base.ConfigSchema, ConfigSchemaRequest.create(), {
        timeoutMs: questionTimeoutMs,
      });
      return answer.spec;
    },
    setConfig: async (request) =>
      void (await channel.unary(base.SetConfig, request, { timeoutMs: configureTimeoutMs })),
    init: async () =>
      void (await ifOffered(channel.unary(methods.Init, InitRequest.create(), { timeoutMs: configureTimeoutMs }))),
    shutdown: async () =>
      void (await ifOffered(
        channel.unary(methods.Shutdown, ShutdownRequest.create(), { timeoutMs: shutdownTimeoutMs }),
      )),
    taskConfigSchema: async () => {
      const answer = await channel.unary(methods.TaskConfigSchema, TaskConfigSchemaRequest.create(), {
        timeoutMs: questionTimeoutMs,
      });
      return answer.spec;
    },
    capabilities: async () => {
      const answer = await channel.unary(methods.Capabilities, CapabilitiesRequest.create(), {
        timeoutMs: questionTimeoutMs,
      });
      return answer.capabilities;
    },
    fingerprint: (receiver) => channel.serverStream(methods.Fingerprint, FingerprintRequest.create(), receiver),
    taskEvents: (receiver) => channel.serverStream(methods.TaskEvents, TaskEventsRequest.create(), receiver),
    taskStats: (taskId, intervalMs, receiver) => watchStats(channel, taskId, intervalMs, receiver),
    async startTask(task) {
      const answer = await channel.unary(startTaskMethod, StartTaskRequest.create({ task }));
      // No Go plugin answers this way, but the protocol allows it.
      const { result, driverErrorMsg } = answer;
      if (result === StartTaskResponse_Result.RETRY)
        throw recoverableError(driverErrorMsg || "the driver reported a recoverable error");
      if (result === StartTaskResponse_Result.FATAL)
        throw new RpcError(Status.UNKNOWN, driverErrorMsg || "the driver reported a fatal error");
      if (answer.handle.length === 0) throw new RpcError(Status.INTERNAL, "StartTask returned no handle");
      return { handle: answer.handle, networkOverride: answer.networkOverride };
    },
    recoverTask: async (handle) =>
      void (await channel.unary(recoverTaskMethod, OpaqueRecoverTaskRequest.create({ handle }))),
    waitTask: (taskId) => channel.unary(methods.WaitTask, WaitTaskRequest.create({ taskId })),
    stopTask: async (taskId, timeoutMs, signal) => {
      const request = StopTaskRequest.create({ taskId, timeout: durationOf(timeoutMs), signal });
      await channel.unary(methods.StopTask, request);
    },
    destroyTask: async (taskId, force) =>
      void (await channel.unary(methods.DestroyTask, DestroyTaskRequest.create({ taskId, force }))),
    inspectTask: (taskId) => channel.unary(methods.InspectTask, InspectTaskRequest.create({ taskId })),
    signalTask: async (taskId, signal) =>
      void (await channel.unary(methods.SignalTask, SignalTaskRequest.create({ taskId, signal }))),
    execTask: (request) =>
      channel.unary(
        methods.ExecTask,
        request.timeout === null ? ExecTaskRequest.patch(request, { timeout: durationOf(execTimeoutMs) }) : request,
      ),
    execTaskStreaming: (receiver) =>
      channel.duplexStream<ExecTaskStreamingRequest, ExecTaskStreamingResponse>(methods.ExecTaskStreaming, receiver),
    execTaskAs(identity, receiver) {
      const call = channel.duplexStream<TaskCommandRequest, ExecTaskStreamingResponse>(
        TaskCommandsService.methods.Exec,
        receiver,
      );
      let unsent: typeof identity | null = identity;
      return {
        ...call,
        write(request) {
          call.write(TaskCommandRequest.create({ identity: unsent, request }));
          unsent = null;
        },
      };
    },
    attachTask(attachment, receiver) {
      const call = channel.duplexStream<TaskAttachRequest, ExecTaskStreamingResponse>(
        TaskCommandsService.methods.Attach,
        receiver,
      );
      let unsent: typeof attachment | null = attachment;
      return {
        ...call,
        write(request) {
          call.write(TaskAttachRequest.create({ attachment: unsent, request }));
          unsent = null;
        },
      };
    },
    createNetwork: (request) => channel.unary(methods.CreateNetwork, request),
    destroyNetwork: async (request) => void (await channel.unary(methods.DestroyNetwork, request)),
  };
}

/** Samples are passed on at least a quarter of the requested interval apart, however fast a plugin sends them. */
const heardShare = 4;

/**
 * Plugins send samples at any rate; the receiver gets at most one, the newest, per quarter of the interval. The stream is
 * paused in between, so that a flood waits in the plugin.
 */
function watchStats(
  channel: DuplexChannel,
  taskId: string,
  intervalMs: number,
  receiver: StreamReceiver<TaskStats>,
): ReceivingCall {
  const request = TaskStatsRequest.create({ taskId, collectionInterval: durationOf(intervalMs) });
  const pauseMs = intervalMs / heardShare;
  let newest: TaskStats | null = null;
  let quiet: NodeJS.Timeout | null = null;
  const rest = (): void => {
    call.pause();
    quiet = setTimeout(() => {
      quiet = null;
      if (newest === null) {
        call.resume();
        return;
      }
      const sample = newest;
      newest = null;
      rest();
      receiver.onMessage(sample);
    }, pauseMs);
  };
  const stop = (): void => {
    if (quiet !== null) clearTimeout(quiet);
    quiet = null;
  };
  const call = channel.serverStream(DriverService.methods.TaskStats, request, {
    onMessage: ({ stats }) => {
      // Nomad's agent also drops samples without a time.
      if (stats === null || stats.timestamp === null) return;
      if (quiet !== null) {
        newest = stats;
        return;
      }
      rest();
      receiver.onMessage(stats);
    },
    onEnd: (error) => {
      stop();
      receiver.onEnd(error);
    },
  });
  return {
    cancel: () => {
      stop();
      call.cancel();
    },
    pause: () => call.pause(),
    resume: () => call.resume(),
  };
}
