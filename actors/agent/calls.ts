/**
 * Passes calls to the node's running tasks on to their drivers: a command in a task, a signal, its resource usage. One stream
 * of answers per call; data bypasses the statecharts.
 *
 * AC1: no more is read from a driver than the manager has space to accept.
 * AC2: a command ends with its call: when the session is lost or the caller is gone, its stream is cancelled and its driver
 *      kills it.
 * AC3: a command in a task has no user that a task of this node cannot have.
 */
import {
  ExecTaskStreamingIOOperation,
  ExecTaskStreamingRequest,
  ExecTaskStreamingRequest_Setup,
  ExecTaskStreamingRequest_TerminalSize,
  TaskAttachment,
  TaskCommandIdentity,
  TaskStats,
  type ExecTaskStreamingResponse,
} from "../../proto/gen/nomad.ts";
import {
  TaskAnswer,
  TaskCallEnd,
  TaskCallsService,
  type TaskAnswerResponse,
  type TaskAttach,
  type TaskCallRequest,
  type TaskExec,
  type TaskExecIdentity,
  type TaskInput,
  type NodeQuestion,
  type TaskTerminalSize,
} from "../../proto/gen/messages.ts";
import type { DriverClient, StreamReceiver } from "../../runtime/ports/plugins.ts";
import type { Clock, Telemetry } from "../../runtime/ports/index.ts";
import {
  RpcError,
  Status,
  type DuplexCall,
  type ReceivingCall,
  type RpcChannel,
  type SendingCall,
} from "../../runtime/ports/rpc.ts";
import { sentence } from "../sentence.ts";
import type { UserOutcome } from "./ports.ts";

/** Maximum unsent bytes of one call: the driver waits while there are more. AC1 */
const sendBytesMax = 128 * 1024;
/** Interval of checking whether the manager has read the data, in milliseconds. */
const roomLookMs = 5;
/** Maximum concurrent calls on one node: each has a stream of the connection, which may have 1,000. */
const callsMax = 800;

const commandsEqual =
  "the task's driver cannot give a command another user, directory, variables or privileges: " +
  "run a shell in the task instead (sh -c 'cd DIR && NAME=VALUE COMMAND')";

const noInput =
  "the task's driver cannot reach the standard input of a task: attach with --no-stdin, or run a command in the task " +
  "(docker exec -it)";

/** The driver of a running task. */
interface CallableTask {
  readonly client: DriverClient;
  /** The task's id in the driver. */
  readonly driverTaskId: string;
  /** The user of a command that asks for this one. AC3 */
  commandUser(requested: string): UserOutcome;
}

/** `reason`: why calls are impossible. */
export type CallTarget = CallableTask | { readonly reason: string };

interface AgentCallsPorts {
  readonly clock: Clock;
  readonly telemetry: Telemetry;
}

export class AgentCalls {
  readonly #ports: AgentCallsPorts;
  readonly #target: (taskId: string) => CallTarget;
  readonly #calls = new Map<string, Call>();

  constructor(ports: AgentCallsPorts, target: (taskId: string) => CallTarget) {
    this.#ports = ports;
    this.#target = target;
  }

  /** To be called with each message of the manager's stream of questions. */
  hear(channel: RpcChannel, { callId, cancel, input, request }: NodeQuestion): void {
    const known = this.#calls.get(callId);
    if (cancel) known?.cancel();
    else if (input !== null) known?.input(input);
    else if (request !== null && known === undefined) this.#begin(channel, callId, request);
  }

  /** To be called when the session ends: every call ends with it. AC2 */
  detach(): void {
    for (const call of this.#calls.values()) call.cancel();
  }

  #begin(channel: RpcChannel, callId: string, request: TaskCallRequest): void {
    const call = new Call(this.#ports, channel.clientStream(TaskCallsService.methods.Answer), callId, () =>
      this.#calls.delete(callId),
    );
    if (this.#calls.size >= callsMax) {
      call.end(Status.RESOURCE_EXHAUSTED, `the node already serves ${callsMax} task calls`);
      return;
    }
    this.#calls.set(callId, call);
    const target = this.#target(request.taskId);
    if ("reason" in target) call.end(Status.FAILED_PRECONDITION, target.reason);
    else call.begin(target, request);
  }
}

/** A driver's work for a call. */
type Work =
  | { readonly kind: "exec"; readonly stream: DuplexCall<ExecTaskStreamingRequest> }
  | { readonly kind: "stats"; readonly stream: ReceivingCall }
  | { readonly kind: "none" };

class Call {
  readonly #ports: AgentCallsPorts;
  readonly #answers: SendingCall<TaskAnswer, TaskAnswerResponse>;
  readonly #id: string;
  readonly #onEnd: () => void;
  #work: Work = { kind: "none" };
  #number = 0;
  #isOver = false;
  #isPaused = false;
  #exit: { readonly exitCode: number; readonly signal: number } | null = null;

  constructor(
    ports: AgentCallsPorts,
    answers: SendingCall<TaskAnswer, TaskAnswerResponse>,
    id: string,
    onEnd: () => void,
  ) {
    this.#ports = ports;
    this.#answers = answers;
    this.#id = id;
    this.#onEnd = onEnd;
  }

  begin(target: CallableTask, { attach, exec, execAs, signal, stats }: TaskCallRequest): void {
    if (exec !== null) this.#exec(target, exec, null);
    else if (attach !== null) this.#attach(target, attach);
    else if (execAs?.exec != null) this.#execAs(target, execAs.exec, execAs.identity);
    else if (stats !== null) this.#stats(target, stats.intervalMs);
    else if (signal !== null) {
      target.client.signalTask(target.driverTaskId, signal.name).then(
        () => this.end(Status.OK, ""),
        (error: unknown) => this.#fail(error),
      );
    } else this.end(Status.UNIMPLEMENTED, "this agent does not support this call");
  }

  input({ close, data, number, size }: TaskInput): void {
    if (this.#isOver || this.#work.kind !== "exec") return;
    const { stream } = this.#work;
    if (size !== null) stream.write(ExecTaskStreamingRequest.create({ ttySize: sizeOf(size) }));
    if (data.length > 0)
      stream.write(ExecTaskStreamingRequest.create({ stdin: ExecTaskStreamingIOOperation.create({ data }) }));
    if (close)
      stream.write(ExecTaskStreamingRequest.create({ stdin: ExecTaskStreamingIOOperation.create({ close: true }) }));
    void this.#taken(stream, number);
  }

  /** To be called when the caller is gone. AC2 */
  cancel(): void {
    if (!this.#over()) return;
    this.#answers.cancel();
  }

  end(status: Status, message: string): void {
    if (this.#isOver) return;
    const { exitCode = 0, signal = 0 } = this.#exit ?? {};
    this.#answer({ end: TaskCallEnd.create({ status, message, exitCode, signal }) });
    this.#over();
    this.#answers.finish().catch((error: unknown) => {
      this.#ports.telemetry.log.debug({ error: sentence(error), call: this.#id }, "cannot send the end of a task call");
    });
  }

  #fail(error: unknown): void {
    // A driver's error without a known status is passed on as UNKNOWN.
    const status = error instanceof RpcError && error.code !== Status.OK ? error.code : Status.UNKNOWN;
    this.end(status, `the task's driver: ${error instanceof Error ? error.message : String(error)}`);
  }

  /** AC3 */
  #execAs(target: CallableTask, exec: TaskExec, asked: TaskExecIdentity | null): void {
    const user = target.commandUser(asked?.user ?? "");
    if (user.kind === "refused") return this.end(Status.PERMISSION_DENIED, user.reason);
    this.#exec(target, exec, TaskCommandIdentity.create({ ...asked, user: user.name }));
  }

  /** `identity`: null if the command does not differ from the task. */
  #exec(
    { client, driverTaskId }: CallableTask,
    { command, size, tty }: TaskExec,
    identity: TaskCommandIdentity | null,
  ): void {
    const stream =
      identity === null
        ? client.execTaskStreaming(this.#receiver(null))
        : client.execTaskAs(identity, this.#receiver(commandsEqual));
    this.#work = { kind: "exec", stream };
    const setup = ExecTaskStreamingRequest_Setup.create({ taskId: driverTaskId, command, tty });
    const ttySize = size === null ? null : sizeOf(size);
    // In the first message for drivers that read it there, so that the command starts with the size; again in the next, which
    // Nomad's drivers read.
    stream.write(ExecTaskStreamingRequest.create({ setup, ttySize }));
    if (ttySize !== null) stream.write(ExecTaskStreamingRequest.create({ ttySize }));
  }

  #attach({ client, driverTaskId }: CallableTask, { detachKeys, logs }: TaskAttach): void {
    const stream = client.attachTask(TaskAttachment.create({ detachKeys, logs }), this.#receiver(noInput));
    this.#work = { kind: "exec", stream };
    const setup = ExecTaskStreamingRequest_Setup.create({ taskId: driverTaskId });
    stream.write(ExecTaskStreamingRequest.create({ setup }));
  }

  /** `unimplemented`: the reason when the driver lacks the method; null: its own error. */
  #receiver(unimplemented: string | null): StreamReceiver<ExecTaskStreamingResponse> {
    return {
      onMessage: (message) => this.#output(message),
      onEnd: (error) => {
        if (this.#exit !== null) this.end(Status.OK, "");
        else if (unimplemented !== null && error?.code === Status.UNIMPLEMENTED)
          this.end(Status.UNIMPLEMENTED, unimplemented);
        else if (error !== null) this.#fail(error);
        else this.end(Status.UNKNOWN, "the task's driver did not report how the call ended");
      },
    };
  }

  #output({ exited, result, stderr, stdout }: ExecTaskStreamingResponse): void {
    if (stdout !== null && stdout.data.length > 0) this.#answer({ stdout: stdout.data });
    if (stderr !== null && stderr.data.length > 0) this.#answer({ stderr: stderr.data });
    // The stream ends after this message.
    if (exited) this.#exit = { exitCode: result?.exitCode ?? -1, signal: result?.signal ?? 0 };
  }

  #stats({ client, driverTaskId }: CallableTask, intervalMs: number): void {
    const stream = client.taskStats(driverTaskId, intervalMs, {
      onMessage: (stats) => this.#answer({ stats: TaskStats.encode(stats) }),
      onEnd: (error) => {
        if (error === null) this.end(Status.OK, "");
        else this.#fail(error);
      },
    });
    this.#work = { kind: "stats", stream };
  }

  #answer(answer: Partial<TaskAnswer>): void {
    if (this.#isOver) return;
    this.#number += 1;
    this.#answers.write(TaskAnswer.create({ callId: this.#id, number: this.#number, ...answer }));
    if (this.#answers.bufferedBytes() > sendBytesMax && !this.#isPaused) void this.#pause();
  }

  /** AC1 */
  async #pause(): Promise<void> {
    if (this.#work.kind === "none") return;
    const { stream } = this.#work;
    this.#isPaused = true;
    stream.pause();
    while (!this.#isOver && this.#answers.bufferedBytes() > sendBytesMax) await this.#moment();
    this.#isPaused = false;
    if (!this.#isOver) stream.resume();
  }

  /** Answers once the driver has the input, so that at most one waits. */
  async #taken(stream: DuplexCall<ExecTaskStreamingRequest>, taken: number): Promise<void> {
    while (!this.#isOver && stream.bufferedBytes() > 0) await this.#moment();
    this.#answer({ taken });
  }

  #moment(): Promise<void> {
    return new Promise((resolve) => this.#ports.clock.setTimeout(resolve, roomLookMs));
  }

  /** False when it was already over. */
  #over(): boolean {
    if (this.#isOver) return false;
    this.#isOver = true;
    if (this.#work.kind !== "none") this.#work.stream.cancel();
    this.#onEnd();
    return true;
  }
}

function sizeOf({ height, width }: TaskTerminalSize): ExecTaskStreamingRequest_TerminalSize {
  return ExecTaskStreamingRequest_TerminalSize.create({ height, width });
}
