/**
 * Hosts the chart of one call to a running task, on the manager that the client called, and forwards its answers. Data bypasses
 * the chart.
 */
import { taskCallMachine, type TaskCallEvent, type TaskCallFailure } from "../machines/task-call.machine.ts";
import { TaskAnswer, NodeQuestion, type TaskCallRequest, type TaskInput } from "../proto/gen/messages.ts";
import type { HostedActor } from "../runtime/host.ts";
import { isReady, isStockEngine } from "../machines/node.ts";
import { RpcError, Status, type Sink } from "../runtime/ports/rpc.ts";
import type { Environment } from "./environment.ts";
import type { Owner } from "./../runtime/host.ts";

/** Maximum bytes waiting for the client, besides one message; beyond it the node has to wait. */
const waitingBytesMax = 256 * 1024;

export type QuestionOutcome = "known" | "unknown" | "unsure";
export type AnswerVerdict = "taken" | "full" | "gone";

interface TaskCallOptions {
  readonly id: string;
  readonly nodeId: string;
  readonly request: TaskCallRequest;
  readonly sink: Sink<TaskAnswer>;
  /** Forwards a question to the manager on which the node listens. */
  readonly ask: (nodeId: string, question: NodeQuestion) => Promise<QuestionOutcome>;
  readonly onOver: (call: TaskCall) => void;
}

export class TaskCall {
  readonly #env: Environment;
  readonly #options: TaskCallOptions;
  readonly #actor: HostedActor<typeof taskCallMachine>;
  /** Numbers of the newest answer and the newest accepted input; C1: a duplicate answer counts once. */
  #answered = 0;
  #taken = 0;
  #isOver = false;
  #inputs: { readonly number: number; readonly done: PromiseWithResolvers<void> }[] = [];

  constructor(env: Environment, options: TaskCallOptions) {
    this.#env = env;
    this.#options = options;
    options.sink.write(TaskAnswer.create({ callId: options.id }));
    this.#actor = env.host.start(taskCallMachine, `task-call/${options.id}`, { callId: options.id }, this.#owner());
  }

  get id(): string {
    return this.#options.id;
  }

  get nodeId(): string {
    return this.#options.nodeId;
  }

  send(event: TaskCallEvent): void {
    this.#actor.send(event);
  }

  take(answer: TaskAnswer): AnswerVerdict {
    if (this.#isOver) return "gone";
    const { end, number, stats, stderr, stdout, taken } = answer;
    if (number <= this.#answered) return "taken";
    const { sink } = this.#options;
    if (sink.bufferedBytes() > waitingBytesMax) return "full";
    this.#answered = number;
    if (taken > this.#taken) this.#tookInput(taken);
    if (stdout.length + stderr.length + stats.length > 0 || end !== null) sink.write(answer);
    if (end !== null) {
      this.#close(end.status === Status.OK ? null : new RpcError(end.status as Status, end.message));
      this.send({ type: "answers.ended" });
    }
    return "taken";
  }

  /** Resolves when the driver has accepted the input. */
  async input(input: TaskInput): Promise<void> {
    if (this.#isOver) throw new RpcError(Status.NOT_FOUND, "the call has ended");
    if (input.number <= this.#taken) return;
    const done = Promise.withResolvers<void>();
    this.#inputs.push({ number: input.number, done });
    const outcome = await this.#ask({ input });
    if (outcome !== "known") throw new RpcError(Status.UNAVAILABLE, "cannot reach the task's node");
    await done.promise;
  }

  /** To be called when the manager stops. */
  stop(): void {
    this.#close(new RpcError(Status.UNAVAILABLE, "the manager is stopping"));
    this.#actor.stop();
  }

  #tookInput(taken: number): void {
    this.#taken = taken;
    const waiting = this.#inputs;
    this.#inputs = waiting.filter(({ number }) => number > taken);
    for (const { done, number } of waiting) if (number <= taken) done.resolve();
  }

  #close(error: RpcError | null): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#options.sink.end(error ?? undefined);
    for (const { done } of this.#inputs) done.resolve();
    this.#inputs = [];
  }

  #errorOf(failure: TaskCallFailure): RpcError {
    const node = this.#env.store.get("node", this.#options.nodeId);
    // docs/reference/swarm-worker-protocol.md §4.11
    if (failure === "unreachable" && node !== undefined && isReady(node) && isStockEngine(node)) {
      const name = node.description?.hostname || node.id;
      return new RpcError(
        Status.UNIMPLEMENTED,
        `node ${name} is a stock engine, and Swarm's protocol has no calls into tasks: use the engine itself ` +
          `(docker -H ssh://${name} exec …)`,
      );
    }
    return new RpcError(Status.UNAVAILABLE, failures[failure]);
  }

  #ask(question: Partial<NodeQuestion>): Promise<QuestionOutcome> {
    const { ask, id, nodeId } = this.#options;
    return ask(nodeId, NodeQuestion.create({ callId: id, home: this.#env.managerId, ...question }));
  }

  #owner(): Owner<typeof taskCallMachine> {
    return {
      effects: {
        ask: () =>
          void this.#ask({ request: this.#options.request }).then((outcome) => {
            // The pulse shows whether it arrived.
            this.send({ type: outcome === "unknown" ? "node.missing" : "node.reached" });
          }),
        lookForPulse: () =>
          void this.#ask({ ping: true }).then((outcome) =>
            this.send({ type: outcome === "known" ? "pulse.heard" : "pulse.missed" }),
          ),
        cancel: () => void this.#ask({ cancel: true }),
        fail: ({ failure }) => this.#close(this.#errorOf(failure)),
        forget: () => {
          this.#close(new RpcError(Status.CANCELLED, "the caller is gone"));
          this.#env.clock.soon(() => {
            this.#actor.stop();
            this.#options.onOver(this);
          });
        },
      },
    };
  }
}

const failures: Readonly<Record<TaskCallFailure, string>> = {
  unreachable: "the task's node is not connected to any manager, or its agent runs no drivers",
  lost: "the task's node was lost during the call",
};
