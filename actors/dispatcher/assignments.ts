/** Hosts `machines/dispatcher/assignments.machine.ts`: each open Assignments or Tasks stream, and the router that feeds them. */
import { observedState } from "../../machines/task.ts";
import type { Span } from "@opentelemetry/api";
import {
  AssignmentsMessage,
  AssignmentsMessage_Type,
  type Task,
  TaskState,
  TasksMessage,
  type AssignmentChange,
} from "../../proto/gen/messages.ts";
import { AssignmentSet, concernsNode, type AssignmentSource } from "../../machines/dispatcher/assignment-diff.ts";
import {
  assignmentLimits,
  assignmentsMachine,
  type AssignmentsInput,
} from "../../machines/dispatcher/assignments.machine.ts";
import { taskFlaw } from "../../machines/orchestration/task-check.ts";
import type { EffectsOf, HostedActor } from "../../runtime/host.ts";
import type { TimerHandle } from "../../runtime/ports/index.ts";
import type { RpcError, Sink } from "../../runtime/ports/rpc.ts";
import type { Commit, Store } from "../../runtime/store/store.ts";
import { Causes, inCause } from "../../runtime/observation/cause.ts";
import { eachChange, traceparentOfTask } from "../../runtime/store/change-traces.ts";
import { spans } from "../../runtime/telemetry/spans.ts";
import type { Environment } from "../environment.ts";
import { continueSpan, describeSpan, endSpan } from "../tracing.ts";

/** The two kinds of stream differ only in what they write. */
interface Writer {
  snapshot(): readonly AssignmentChange[];
  changes(taskIds: Iterable<string>, volumeIds: Iterable<string>): readonly AssignmentChange[];
  complete(changes: readonly AssignmentChange[], resultsIn: string): void;
  increment(changes: readonly AssignmentChange[], appliesTo: string, resultsIn: string): void;
  readonly sink: Sink<AssignmentsMessage> | Sink<TasksMessage>;
}

interface Noted {
  readonly taskIds: Set<string>;
  readonly volumeIds: Set<string>;
  readonly causes: Causes;
}

export type StreamTarget =
  | { readonly method: "Assignments"; readonly sink: Sink<AssignmentsMessage> }
  | { readonly method: "Tasks"; readonly sink: Sink<TasksMessage> };

export class AssignmentStream {
  static readonly #effects: EffectsOf<typeof assignmentsMachine, AssignmentStream> = {
    collectChanges() {
      this.#collect();
    },
    writeComplete({ changes, resultsIn }) {
      this.#writer.complete(changes, resultsIn);
    },
    writeIncrement({ changes, appliesTo, resultsIn }) {
      this.#writer.increment(changes, appliesTo, resultsIn);
    },
  };

  readonly nodeId: string;
  readonly #hosted: HostedActor<typeof assignmentsMachine>;
  readonly #writer: Writer;
  readonly #onEnd: (stream: AssignmentStream) => void;
  /** Changes since the last message; null when there are none, as for idle nodes. */
  #noted: Noted | null = null;
  #ended = false;

  constructor(
    env: Environment,
    id: string,
    input: AssignmentsInput,
    writer: Writer,
    onEnd: (stream: AssignmentStream) => void,
  ) {
    this.nodeId = input.nodeId;
    this.#writer = writer;
    this.#onEnd = onEnd;
    this.#hosted = env.host.start(assignmentsMachine, id, input, {
      effects: AssignmentStream.#effects,
      self: this,
    });
    this.#hosted.send({ type: "snapshot.taken", changes: writer.snapshot() });
  }

  noteTask(id: string): void {
    this.#note().taskIds.add(id);
  }

  noteVolume(id: string): void {
    this.#note().volumeIds.add(id);
  }

  #note(): Noted {
    const noted = (this.#noted ??= { taskIds: new Set(), volumeIds: new Set(), causes: new Causes() });
    noted.causes.note();
    return noted;
  }

  /** Number of changes not sent to the node yet. */
  get notedSize(): number {
    return this.#noted === null ? 0 : this.#noted.taskIds.size + this.#noted.volumeIds.size;
  }

  /** To be called at the end of a batch: sends the recorded changes. */
  flush(): void {
    if (this.#ended || this.#noted === null) return;
    inCause(this.#noted.causes.take(), () => this.#hosted.send({ type: "changes.noted" }));
  }

  end(error?: RpcError): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#hosted.send({ type: "stream.ended" });
    this.#hosted.stop();
    this.#writer.sink.end(error);
    this.#onEnd(this);
  }

  #collect(): void {
    const noted = this.#noted;
    if (noted === null) return;
    if (this.#writer.sink.bufferedBytes() > assignmentLimits.bufferedBytesMax) {
      this.#hosted.send({ type: "peer.stalled" });
      return;
    }
    const changes = this.#writer.changes(noted.taskIds, noted.volumeIds);
    this.#noted = null;
    for (let at = 0; at < changes.length; at += assignmentLimits.changesMax) {
      const part = changes.slice(at, at + assignmentLimits.changesMax);
      this.#hosted.send({ type: "changes.collected", changes: part });
    }
  }
}

/**
 * Feeds all streams of this manager from one watcher: the cost of a commit depends on its changes, not on the number of nodes.
 */
export class AssignmentRouter {
  readonly #env: Environment;
  readonly #source: AssignmentSource;
  readonly #refuse: (task: Task, flaw: string) => void;
  readonly #byNode = new Map<string, Set<AssignmentStream>>();
  #noted = new Set<AssignmentStream>();
  #timer: TimerHandle | null = null;
  #isFlushing = false;
  #isStopped = false;
  #batchMs: number = assignmentLimits.batchMs;
  #opened = 0;

  constructor(env: Environment, refuse: (task: Task, flaw: string) => void) {
    this.#env = env;
    this.#source = sourceOf(env.store);
    this.#refuse = refuse;
  }

  /** Starts a stream; `onEnd` is called once when it ends, for whatever reason. */
  open(
    nodeId: string,
    sessionId: string,
    target: StreamTarget,
    onEnd: (stream: AssignmentStream) => void,
  ): AssignmentStream {
    const writer =
      target.method === "Assignments"
        ? this.#assignmentsWriter(nodeId, target.sink)
        : this.#tasksWriter(nodeId, target.sink);
    this.#opened += 1;
    const input = { nodeId, sessionId, method: target.method };
    const stream = new AssignmentStream(this.#env, `assignments/${nodeId}/${this.#opened}`, input, writer, (ended) => {
      const streams = this.#byNode.get(nodeId);
      streams?.delete(ended);
      if (streams?.size === 0) this.#byNode.delete(nodeId);
      this.#noted.delete(ended);
      onEnd(ended);
    });
    const streams = this.#byNode.get(nodeId) ?? new Set();
    this.#byNode.set(nodeId, streams.add(stream));
    return stream;
  }

  onCommit(commit: Commit): void {
    if (this.#byNode.size === 0) return;
    eachChange(commit, (change) => {
      if (change.table === "task") {
        const { object, old } = change;
        if (change.action === "remove" || concernsNode(old, object)) this.#note(object.nodeId, object.id, "task");
        if (old !== null && old.nodeId !== object.nodeId) this.#note(old.nodeId, object.id, "task");
      } else if (change.table === "volume") {
        const nodes = new Set(
          [...change.object.publishStatus, ...(change.old?.publishStatus ?? [])].map(({ nodeId }) => nodeId),
        );
        for (const nodeId of nodes) this.#note(nodeId, change.object.id, "volume");
      }
    });
  }

  stop(): void {
    this.#isStopped = true;
    if (this.#timer !== null) this.#env.clock.clearTimeout(this.#timer);
    this.#timer = null;
  }

  #note(nodeId: string, id: string, kind: "task" | "volume"): void {
    const streams = this.#byNode.get(nodeId);
    if (streams === undefined) return;
    for (const stream of streams) {
      if (kind === "task") stream.noteTask(id);
      else stream.noteVolume(id);
      this.#noted.add(stream);
    }
    if (!this.#isFlushing) this.#wait();
  }

  #wait(): void {
    this.#timer ??= this.#env.clock.setTimeout(() => {
      this.#timer = null;
      const noted = [...this.#noted];
      this.#noted = new Set();
      this.#isFlushing = true;
      // A commit that concerned many streams is likely one of several.
      const isBusy = noted.length > assignmentLimits.streamsAtOnce;
      this.#batchMs = isBusy ? assignmentLimits.busyBatchMs : assignmentLimits.batchMs;
      this.#flush(noted, 0);
    }, this.#batchMs);
  }

  /** Flushes some of the streams at a time, so that other work gets its turn. */
  #flush(noted: readonly AssignmentStream[], from: number): void {
    if (this.#isStopped) return;
    const last = Math.min(noted.length, from + assignmentLimits.streamsAtOnce);
    let to = from;
    for (let changes = 0; to < last && changes < assignmentLimits.changesAtOnce; to += 1) {
      const stream = noted[to] as AssignmentStream;
      changes += stream.notedSize;
      stream.flush();
    }
    if (to < noted.length) {
      this.#env.clock.soon(() => this.#flush(noted, to));
      return;
    }
    this.#isFlushing = false;
    if (this.#noted.size > 0) this.#wait();
  }

  #assignmentsWriter(nodeId: string, sink: Sink<AssignmentsMessage>): Writer {
    const set = new AssignmentSet(nodeId, this.#source, this.#refuse);
    const write = (message: AssignmentsMessage): void => {
      const span = this.#startSpan(nodeId, message.changes);
      sink.write(AssignmentsMessage.create(message));
      if (span !== null) endSpan(this.#env, span);
    };
    return {
      sink,
      snapshot: () => set.complete(),
      changes: (taskIds, volumeIds) => set.changes(taskIds, volumeIds),
      complete: (changes, resultsIn) =>
        write({ type: AssignmentsMessage_Type.COMPLETE, appliesTo: "", resultsIn, changes }),
      increment: (changes, appliesTo, resultsIn) =>
        write({ type: AssignmentsMessage_Type.INCREMENTAL, appliesTo, resultsIn, changes }),
    };
  }

  /** A span in the trace of the first traced new task. */
  #startSpan(nodeId: string, changes: readonly AssignmentChange[]): Span | null {
    for (const { assignment } of changes) {
      const task = assignment?.task ?? null;
      if (task === null || task.status?.state !== TaskState.ASSIGNED) continue;
      const traceparent = traceparentOfTask(task);
      if (traceparent === "") continue;
      const span = continueSpan(this.#env, spans.assignmentsSend, traceparent);
      if (span === null) return null;
      describeSpan(span, spans.assignmentsSend, { "muster.node.id": nodeId, "muster.changes": changes.length });
      return span;
    }
    return null;
  }

  /** Each message is the whole list; changes only decide when to send it. */
  #tasksWriter(nodeId: string, sink: Sink<TasksMessage>): Writer {
    const set = new AssignmentSet(nodeId, this.#source, this.#refuse);
    const write = (): void => {
      const tasks: Task[] = [];
      for (const task of this.#env.store.tasksByNode(nodeId)) {
        if (observedState(task) >= TaskState.ASSIGNED && taskFlaw(task) === null) tasks.push(task);
      }
      sink.write(TasksMessage.create({ tasks }));
    };
    return {
      sink,
      snapshot: () => set.complete(),
      changes: (taskIds, volumeIds) => set.changes(taskIds, volumeIds),
      complete: write,
      increment: write,
    };
  }
}

function sourceOf(store: Store): AssignmentSource {
  return {
    task: (id) => store.get("task", id),
    secret: (id) => store.get("secret", id),
    config: (id) => store.get("config", id),
    volume: (id) => store.get("volume", id),
    tasksOf: (nodeId) => store.tasksByNode(nodeId),
    volumes: () => store.all("volume"),
  };
}
