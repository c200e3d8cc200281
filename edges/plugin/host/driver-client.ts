/** The services of a driver plugin over its connection. */
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
import type { DriverClient, StreamReceiver } from "../../../runtime/plugins.ts";
import { RpcError, Status, type DuplexChannel, type ReceivingCall } from "../../../runtime/rpc.ts";
import { recoverableError } from "../../../runtime/recoverable.ts";

/** Milliseconds that a plugin has for what needs no work: what it is, what it can do, what its configuration looks like. */
const questionTimeoutMs = 10_000;
/** For SetConfig and Init: a driver may look around the machine for it. */
const configureTimeoutMs = 30_000;
/** Nomad's own, for Shutdown. */
const shutdownTimeoutMs = 2_000;
/** What an exec gets that says no time: plugins made with Go take 0 for a deadline that has passed. */
const execTimeoutMs = 30_000;

/** On the wire StartTask's, with the handle as its bytes. */
const startTaskMethod: MethodDescriptor<StartTaskRequest, OpaqueStartTaskResponse> = {
  ...DriverService.methods.StartTask,
  response: OpaqueStartTaskResponse,
};
const recoverTaskMethod: MethodDescriptor<OpaqueRecoverTaskRequest, RecoverTaskResponse> = {
  ...DriverService.methods.RecoverTask,
  request: OpaqueRecoverTaskRequest,
};

/** Null where the plugin is older than the method. */
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
      // No plugin made with Go says it this way, but the protocol has it.
      const { result, driverErrorMsg } = answer;
      if (result === StartTaskResponse_Result.RETRY)
        throw recoverableError(driverErrorMsg || "the driver asks to retry");
      if (result === StartTaskResponse_Result.FATAL)
        throw new RpcError(Status.UNKNOWN, driverErrorMsg || "the driver failed for good");
      if (answer.handle.length === 0) throw new RpcError(Status.INTERNAL, "StartTask was answered without a handle");
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
    createNetwork: (request) => channel.unary(methods.CreateNetwork, request),
    destroyNetwork: async (request) => void (await channel.unary(methods.DestroyNetwork, request)),
  };
}

/** A quarter of the interval asked for: a plugin that sends faster than that is heard at this pace. */
const heardShare = 4;

/**
 * Samples come as fast as the plugin likes; the receiver gets one in a quarter of the interval at most, the newest, and the
 * stream is paused meanwhile, so that a flood waits in the plugin.
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
      // Samples that Nomad's agent would drop too: nobody could say when they were taken.
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
