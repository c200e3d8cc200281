/** Hosts the session chart of one agent: one connection at a time, its streams and its heartbeats. */
import { agentSessionMachine, type SessionNews } from "../../machines/agent/session.machine.ts";
import { sessionEndWeight, type KnownManager } from "../../machines/agent/managers.ts";
import {
  AssignmentChange,
  Assignment,
  AssignmentsMessage,
  AssignmentsMessage_Type as AssignmentsKind,
  AssignmentsRequest,
  DispatcherService,
  HeartbeatRequest,
  ListenSubscriptionsRequest,
  ListenTaskCallsRequest,
  LogBrokerService,
  NodeDescription,
  SessionRequest,
  TaskCallsService,
  TasksRequest,
  UpdateTaskStatusRequest,
  UpdateTaskStatusRequest_TaskStatusUpdate,
  UpdateVolumeStatusRequest,
  UpdateVolumeStatusRequest_VolumeStatusUpdate,
  type NodeQuestion,
  type SessionMessage,
  type TasksMessage,
} from "../../proto/gen/messages.ts";
import { durationMs } from "../../proto/time.ts";
import { assert } from "../../lib/assert.ts";
import { drawBelow } from "../../lib/backoff.ts";
import type { HostedActor } from "../../runtime/host.ts";
import { Causes, inCause, isWatched, type Cause } from "../../runtime/observation/cause.ts";
import { Status, type RpcChannel, type RpcError } from "../../runtime/ports/rpc.ts";
import { equalBytes } from "../../runtime/store/record.ts";
import { traceparentOfTask } from "../../runtime/store/change-traces.ts";
import type { AgentLogs } from "./logs.ts";
import type { ManagerList } from "./managers.ts";
import type { AgentPorts, TlsMaterial } from "./ports.ts";
import type { StatusReports } from "./reports.ts";
import type { Owner } from "../../runtime/host.ts";
import type { NodeVolumes } from "./node-volumes.ts";
import type { NetworkFollower } from "./network-follower.ts";
import type { PolicyFollower } from "./policy-follower.ts";
import { sentence } from "../sentence.ts";

/** Deadline of a heartbeat (worker protocol §2.1). */
const heartbeatTimeoutMs = 5_000;
/** Timeout in milliseconds; the manager answers once the log has it. */
const volumeReportTimeoutMs = 20_000;

interface Answerer {
  /** Called with each question; drops those that are not its own. */
  hear(channel: RpcChannel, question: NodeQuestion): void;
  /** Called when the session ends. */
  detach(): void;
}

interface SessionOptions {
  readonly name: string;
  readonly managers: ManagerList;
  readonly reports: StatusReports;
  readonly volumes: NodeVolumes;
  readonly logs: AgentLogs;
  /** Null: this node has no dataplane. */
  readonly policy: PolicyFollower | null;
  /** Null: this node creates no networks for tasks. */
  readonly networks: NetworkFollower | null;
  /** Everything that answers the manager's questions to the node. */
  readonly answerers: readonly Answerer[];
  /** The newest certificate, key and root. */
  readonly identity: () => TlsMaterial;
  readonly describe: () => NodeDescription;
  readonly onMessage: (message: SessionMessage) => void;
  readonly onAssignments: (message: AssignmentsMessage) => void;
  readonly onNews: (news: SessionNews) => void;
}

/** The traces of the tasks that are assigned or changed. A complete list says nothing new of most of them. */
function causeOf({ changes, type }: AssignmentsMessage): Cause {
  const causes = new Causes();
  if (isWatched() && type !== AssignmentsKind.COMPLETE)
    for (const { assignment } of changes)
      if (assignment?.task != null) causes.addTrace(traceparentOfTask(assignment.task));
  return { ...causes.take(), call: "Dispatcher.Assignments" };
}

/** One attempt with one manager, from dialling to its end. Events of a closed one are ignored. */
interface Link {
  readonly manager: KnownManager;
  readonly streams: { cancel(): void }[];
  channel: RpcChannel | null;
  isClosed: boolean;
}

export class SessionActor {
  readonly #ports: AgentPorts;
  readonly #options: SessionOptions;
  readonly #actor: HostedActor<typeof agentSessionMachine>;
  #link: Link | null = null;
  /** The description that the manager has, encoded. */
  #described: Uint8Array = new Uint8Array();
  /** The last that was found to be the same as that. */
  #compared: NodeDescription | null = null;

  constructor(ports: AgentPorts, options: SessionOptions) {
    this.#ports = ports;
    this.#options = options;
    this.#actor = ports.host.start(agentSessionMachine, `agent-session/${options.name}`, undefined, this.#owner());
  }

  start(): void {
    this.#actor.send({ type: "session.wanted" });
  }

  /** To be called when the certificate or root has changed. */
  identityChanged(): void {
    this.#actor.send({ type: "identity.changed" });
  }

  /** Ends the session for a reason found elsewhere; it is then rebuilt. */
  fail(reason: string): void {
    this.#actor.send({ type: "session.failed", reason });
  }

  stop(): void {
    this.#actor.send({ type: "session.unwanted" });
    this.#actor.stop();
  }

  #owner(): Owner<typeof agentSessionMachine> {
    const { managers, onAssignments, onMessage, onNews } = this.#options;
    return {
      draw: drawBelow(this.#ports.random),
      effects: {
        connect: () => this.#connect(),
        openSession: ({ sessionId }) => this.#openSession(sessionId),
        applySessionMessage: ({ message }) => {
          managers.replace(message.managers);
          onMessage(message);
        },
        openStreams: ({ sessionId }) => this.#openStreams(sessionId),
        sendHeartbeat: ({ sessionId }) => this.#heartbeat(sessionId),
        // Deferred out of this transition: it starts actors, which XState warns about inside an action.
        applyAssignments: ({ message }) => this.#ports.clock.soon(this.#ports.host.later(() => onAssignments(message))),
        compareDescription: () => this.#compareDescription(),
        endSession: () => this.#end(),
        announce: (news) => onNews(news),
      },
    };
  }

  #connect(): void {
    const { managers, identity } = this.#options;
    const manager = managers.choose();
    if (manager === null) {
      this.fail("no manager address is known");
      return;
    }
    const link: Link = { manager, streams: [], channel: null, isClosed: false };
    this.#link = link;
    this.#ports.dialer.dial(manager.addr, "node", identity(), manager.nodeId).then(
      (channel) => {
        if (link.isClosed) {
          channel.close();
          return;
        }
        link.channel = channel;
        channel.onClosed(() => this.#fail(link, `the connection to ${manager.addr} ended`));
        this.#actor.send({ type: "manager.reached", addr: manager.addr });
      },
      (error: unknown) => {
        if (!link.isClosed) managers.unreached(manager);
        this.#fail(link, `cannot reach ${manager.addr}: ${sentence(error)}`);
      },
    );
  }

  #openSession(sessionId: string): void {
    const { link, channel } = this.#open();
    const description = this.#options.describe();
    this.#described = NodeDescription.encode(description);
    this.#compared = description;
    const stream = channel.serverStream(
      DispatcherService.methods.Session,
      SessionRequest.create({ description, sessionId }),
      {
        onMessage: (message) => {
          if (!link.isClosed) this.#actor.send({ type: "session.message", message });
        },
        onEnd: (error) => this.#fail(link, ended("session", error)),
      },
    );
    link.streams.push(stream);
  }

  #openStreams(sessionId: string): void {
    const { link, channel } = this.#open();
    this.#followAssignments(link, channel, sessionId);
    const subscriptions = channel.serverStream(
      LogBrokerService.methods.ListenSubscriptions,
      ListenSubscriptionsRequest.create(),
      {
        onMessage: (message) => {
          if (!link.isClosed) this.#options.logs.hear(channel, message);
        },
        onEnd: (error) => {
          // A manager without a log broker: the session continues without logs (worker protocol §2.3).
          if (error?.code !== Status.UNIMPLEMENTED) this.#fail(link, ended("log subscriptions", error));
        },
      },
    );
    link.streams.push(subscriptions);
    const questions = channel.serverStream(TaskCallsService.methods.Listen, ListenTaskCallsRequest.create(), {
      onMessage: (question) => {
        if (link.isClosed) return;
        for (const each of this.#options.answerers) each.hear(channel, question);
      },
      onEnd: (error) => {
        // SwarmKit's managers do not have this service.
        if (error?.code !== Status.UNIMPLEMENTED) this.#fail(link, ended("questions", error));
      },
    });
    link.streams.push(questions);
    const policy = this.#options.policy?.attach(channel, (reason) => this.#fail(link, `network policy: ${reason}`));
    if (policy !== undefined) link.streams.push(policy);
    const networks = this.#options.networks?.attach(channel, (reason) => this.#fail(link, `networks: ${reason}`));
    if (networks !== undefined) link.streams.push(networks);
    this.#options.reports.attach((statuses, traceparent) => {
      const updates = statuses.map(({ status, taskId }) =>
        UpdateTaskStatusRequest_TaskStatusUpdate.create({ taskId, status }),
      );
      return channel.unary(
        DispatcherService.methods.UpdateTaskStatus,
        UpdateTaskStatusRequest.create({ sessionId, updates }),
        { traceparent },
      );
    });
    this.#options.volumes.attach((volumeId) => {
      const update = UpdateVolumeStatusRequest_VolumeStatusUpdate.create({ id: volumeId, unpublished: true });
      return channel.unary(
        DispatcherService.methods.UpdateVolumeStatus,
        UpdateVolumeStatusRequest.create({ sessionId, updates: [update] }),
        { timeoutMs: volumeReportTimeoutMs },
      );
    });
  }

  #followAssignments(link: Link, channel: RpcChannel, sessionId: string): void {
    const stream = channel.serverStream(
      DispatcherService.methods.Assignments,
      AssignmentsRequest.create({ sessionId }),
      {
        onMessage: (message) => this.#assign(link, message),
        onEnd: (error) => {
          if (error?.code === Status.UNIMPLEMENTED) this.#followTasks(link, channel, sessionId);
          else this.#fail(link, ended("assignments", error));
        },
      },
    );
    link.streams.push(stream);
  }

  /** The stream of managers without `Assignments`: the full list of tasks each time. */
  #followTasks(link: Link, channel: RpcChannel, sessionId: string): void {
    if (link.isClosed) return;
    const stream = channel.serverStream(DispatcherService.methods.Tasks, TasksRequest.create({ sessionId }), {
      onMessage: (message) => this.#assign(link, asAssignments(message)),
      onEnd: (error) => this.#fail(link, ended("tasks", error)),
    });
    link.streams.push(stream);
  }

  #assign(link: Link, message: AssignmentsMessage): void {
    if (link.isClosed) return;
    const { appliesTo, resultsIn, type } = message;
    const complete = type === AssignmentsKind.COMPLETE;
    inCause(causeOf(message), () =>
      this.#actor.send({ type: "assignments.received", message, complete, appliesTo, resultsIn }),
    );
  }

  #heartbeat(sessionId: string): void {
    const { link, channel } = this.#open();
    const { clock } = this.#ports;
    const sentAt = clock.monotonic();
    channel
      .unary(DispatcherService.methods.Heartbeat, HeartbeatRequest.create({ sessionId }), {
        timeoutMs: heartbeatTimeoutMs,
      })
      .then(
        ({ period }) => {
          if (!link.isClosed)
            this.#actor.send({
              type: "heartbeat.answered",
              periodMs: durationMs(period, 0),
              tookMs: Math.round(clock.monotonic() - sentAt),
            });
        },
        (error: unknown) => this.#fail(link, `heartbeat: ${sentence(error)}`),
      );
  }

  #compareDescription(): void {
    const description = this.#options.describe();
    const isSame = description === this.#compared || equalBytes(NodeDescription.encode(description), this.#described);
    if (isSame) this.#compared = description;
    this.#actor.send({ type: isSame ? "description.same" : "description.changed" });
  }

  #open(): { link: Link; channel: RpcChannel } {
    const link = this.#link;
    assert(link !== null && link.channel !== null && !link.isClosed, "A1: a session is opened over a connection");
    return { link, channel: link.channel };
  }

  #fail(link: Link, reason: string): void {
    if (!link.isClosed) this.fail(reason);
  }

  /** A3 */
  #end(): void {
    const link = this.#link;
    this.#link = null;
    if (link === null || link.isClosed) return;
    link.isClosed = true;
    this.#options.reports.detach();
    this.#options.volumes.detach();
    this.#options.logs.detach();
    for (const each of this.#options.answerers) each.detach();
    this.#options.managers.observe(link.manager, sessionEndWeight);
    for (const stream of link.streams) stream.cancel();
    link.channel?.close();
  }
}

function ended(what: string, error: RpcError | null): string {
  return error === null ? `the manager ended the ${what} stream` : `${what}: ${sentence(error)}`;
}

function asAssignments({ tasks }: TasksMessage): AssignmentsMessage {
  return AssignmentsMessage.create({
    type: AssignmentsKind.COMPLETE,
    changes: tasks.map((task) => AssignmentChange.create({ assignment: Assignment.create({ task }) })),
  });
}
