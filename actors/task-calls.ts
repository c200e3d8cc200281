/**
 * The TaskAccess service of every manager. The manager that a client calls holds the call (`TaskCall`); the manager on which
 * the node listens (`NodeCalls`) forwards questions to it. Between managers, questions and answers are requests on the bus.
 *
 * TC1: an unread answer stops its node: delivery is retried until it is accepted, and until then HTTP/2 keeps the node from
 *      sending more of that call.
 * TC2: a signal, an exec or an attachment is recorded with its caller in the task's history, as changes are.
 */
import { isRunning } from "../machines/task.ts";
import { taskCallTimes } from "../machines/task-call.machine.ts";
import {
  TaskAnswerDelivery,
  TaskAnswerDeliveryReply,
  TaskAnswerVerdict as Verdict,
  TaskInputResponse,
  NodeQuestion,
  NodeQuestionReply,
  type TaskAccessService,
  type TaskAnswer,
  type TaskCallRequest,
} from "../proto/gen/messages.ts";
import { isSubjectToken, newId } from "../runtime/ids.ts";
import { RpcError, Status, type CallContext, type ServiceHandlers, type Sink } from "../runtime/ports/rpc.ts";
import * as subjects from "../runtime/subjects.ts";
import { replacement, transact } from "./control/write.ts";
import { busMessage } from "./bus-message.ts";
import type { Environment, Running } from "./environment.ts";
import type { NodeCalls } from "./node-calls.ts";
import { TaskCall, type AnswerVerdict, type QuestionOutcome } from "./task-call.ts";

/** Maximum number of calls in progress at one manager. */
const callsMax = 1_000;
/** Maximum bytes of an input, and of an answer's output; a NATS message has space for more. */
const inputBytesMax = 64 * 1024;
/** Timeout of a delivery, and delay before retrying one that was not accepted, in milliseconds. */
const deliveryTimeoutMs = 2_000;
const fullMs = 20;

export interface TaskCalls extends Running {
  readonly access: ServiceHandlers<typeof TaskAccessService>;
}

const verdicts: Readonly<Record<AnswerVerdict, Verdict>> = {
  taken: Verdict.TASK_ANSWER_TAKEN,
  full: Verdict.TASK_ANSWER_FULL,
  gone: Verdict.TASK_ANSWER_GONE,
};

export function createTaskCalls(env: Environment, nodes: NodeCalls): TaskCalls {
  const ids = env.random.fork("task-calls");
  const calls = new Map<string, TaskCall>();
  const { bus, clock, managerId, store } = env;

  async function ask(nodeId: string, question: NodeQuestion): Promise<QuestionOutcome> {
    const timeoutMs = taskCallTimes.askTimeoutMs;
    const subject = subjects.taskQuestion(nodeId);
    const outcome = await bus.request(subject, NodeQuestion.encode(question), { timeoutMs });
    if (outcome.kind === "no-responders") return "unknown";
    const reply = outcome.kind === "reply" ? busMessage(env, NodeQuestionReply, { ...outcome, subject }) : null;
    if (reply === null) return "unsure";
    return reply.known ? "known" : "unknown";
  }

  function nodeOf({ attach, exec, execAs, signal, stats, taskId }: TaskCallRequest): string {
    if ([attach, exec, execAs, signal, stats].filter((each) => each !== null).length !== 1)
      throw new RpcError(Status.INVALID_ARGUMENT, "specify exactly one of attach, exec, exec_as, signal and stats");
    const commandOf = execAs === null ? exec : execAs.exec;
    if ((exec !== null || execAs !== null) && (commandOf?.command ?? []).length === 0)
      throw new RpcError(Status.INVALID_ARGUMENT, "a command is required");
    if (signal !== null && signal.name === "") throw new RpcError(Status.INVALID_ARGUMENT, "a signal is required");
    if (stats !== null && stats.intervalMs < 100)
      throw new RpcError(Status.INVALID_ARGUMENT, "the interval between samples must be at least 100 ms");
    const task = store.get("task", taskId);
    if (task === undefined) throw new RpcError(Status.NOT_FOUND, `task ${taskId} not found`);
    if (!isRunning(task) || !isSubjectToken(task.nodeId))
      throw new RpcError(Status.FAILED_PRECONDITION, `task ${taskId} is not running`);
    return task.nodeId;
  }

  /**
   * TC2: records no command, since it may contain secrets. The call does not wait for the write: it may be the repair of a
   *      hanging log.
   */
  function note(
    { attach, exec, execAs, signal, taskId }: TaskCallRequest,
    { method = "", peer, traceparent }: CallContext,
  ): void {
    if (attach === null && exec === null && execAs === null && signal === null) return;
    const asked = { peer, traceparent, method: `${method} ${signal?.name ?? (attach === null ? "exec" : "attach")}` };
    const write = transact(env, asked, () => {
      const task = store.get("task", taskId);
      if (task === undefined) throw new RpcError(Status.NOT_FOUND, `task ${taskId} not found`);
      return [replacement("task", task)];
    });
    write.catch((error: unknown) =>
      env.telemetry.log.warn({ err: error, task: taskId, method }, "cannot record a call in the task's history"),
    );
  }

  function begin(request: TaskCallRequest, sink: Sink<TaskAnswer>, context: CallContext): void {
    const { signal } = context;
    const nodeId = nodeOf(request);
    if (calls.size >= callsMax)
      throw new RpcError(Status.RESOURCE_EXHAUSTED, `this manager already serves ${callsMax} task calls`);
    const id = newId(ids);
    const call = new TaskCall(env, { id, nodeId, request, sink, ask, onOver: () => calls.delete(id) });
    calls.set(id, call);
    note(request, context);
    const onAbort = (): void => call.send({ type: "caller.left" });
    if (signal.aborted) onAbort();
    else signal.addEventListener("abort", onAbort, { once: true });
  }

  /** Forwards the questions of all managers to a node that listens here. */
  function forward(nodeId: string): () => void {
    const subscription = bus.subscribe(subjects.taskQuestion(nodeId), (message) => {
      const question = busMessage(env, NodeQuestion, message);
      if (question === null) return;
      const known = passOn(nodeId, question);
      message.respond(NodeQuestionReply.encode(NodeQuestionReply.create({ known })));
    });
    return () => subscription.unsubscribe();
  }

  function passOn(nodeId: string, question: NodeQuestion): boolean {
    const { callId, home, ping, request } = question;
    if (ping) return nodes.isInProgress(nodeId, callId);
    if (request === null) return nodes.ask(nodeId, question);
    return nodes.ask(nodeId, question, { task: (answer) => deliver(home, nodeId, answer) });
  }

  /** False when the caller is gone. TC1 */
  async function deliver(home: string, nodeId: string, answerOf: TaskAnswer): Promise<boolean> {
    const data = TaskAnswerDelivery.encode(TaskAnswerDelivery.create({ nodeId, answer: answerOf }));
    for (;;) {
      const verdict = home === managerId ? take(nodeId, answerOf) : await delivered(home, data);
      if (verdict === "taken") return true;
      if (verdict === "gone") return false;
      await new Promise<void>((resolve) => clock.setTimeout(resolve, fullMs));
    }
  }

  async function delivered(home: string, data: Uint8Array): Promise<AnswerVerdict> {
    const subject = subjects.taskAnswered(home);
    const outcome = await bus.request(subject, data, { timeoutMs: deliveryTimeoutMs });
    if (outcome.kind === "no-responders") return "gone";
    // A duplicate is harmless: answers have numbers.
    const reply = outcome.kind === "reply" ? busMessage(env, TaskAnswerDeliveryReply, { ...outcome, subject }) : null;
    if (reply === null) return "full";
    const { verdict } = reply;
    if (verdict === Verdict.TASK_ANSWER_TAKEN) return "taken";
    return verdict === Verdict.TASK_ANSWER_FULL ? "full" : "gone";
  }

  function take(nodeId: string, of: TaskAnswer | null): AnswerVerdict {
    const call = of === null ? undefined : calls.get(of.callId);
    // A node may answer only for its own tasks.
    if (of === null || call === undefined || call.nodeId !== nodeId) return "gone";
    return call.take(of);
  }

  const listening = nodes.onListening(forward);
  const answers = bus.subscribe(subjects.taskAnswered(managerId), (message) => {
    const delivery = busMessage(env, TaskAnswerDelivery, message);
    if (delivery === null) return;
    const { answer: of, nodeId } = delivery;
    const verdict = verdicts[take(nodeId, of)];
    message.respond(TaskAnswerDeliveryReply.encode(TaskAnswerDeliveryReply.create({ verdict })));
  });

  return {
    access: {
      Call: begin,
      async Send(input) {
        if (input.data.length > inputBytesMax)
          throw new RpcError(
            Status.INVALID_ARGUMENT,
            `input too large: ${input.data.length} bytes, limit ${inputBytesMax}`,
          );
        const call = calls.get(input.callId);
        if (call === undefined) throw new RpcError(Status.NOT_FOUND, "call not found on this manager");
        await call.input(input);
        return TaskInputResponse.create();
      },
    },
    stop() {
      listening.unsubscribe();
      answers.unsubscribe();
      for (const call of calls.values()) call.stop();
    },
  };
}
