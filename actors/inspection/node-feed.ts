/**
 * The feed of one node's agent for one listener, over the connection that the agent has with this manager. Bypasses the
 * statecharts: an actor that moved with each message would feed itself.
 *
 * Stages: asked → flowing → over. Over, it is asked for again at intervals, as long as the node listens here.
 *
 * NF1: a message of a node counts as that node's, whatever process it names.
 * NF2: the sequences that the listener sees only increase, however often the node was asked.
 * NF3: a node without room at its listener waits; nothing of it is queued here. Its connection is not held up either, which also
 *      carries its heartbeats: it is told to wait, in words.
 */
import { nodeProcess } from "../../machines/inspection/selection.ts";
import {
  ActorFeed,
  InspectionPace,
  NodeQuestion,
  WatchActorsRequest,
  type ActorSelection,
  type InspectionAnswer,
} from "../../proto/gen/messages.ts";
import type { Clock, TimerHandle } from "../../runtime/ports/index.ts";
import type { NodeCalls } from "../node-calls.ts";

/** An agent says every 2 s that it is there (`actors/agent/inspection.ts`); silent for this long, in milliseconds, it is lost. */
const silenceMs = 7_000;
/** Between two tries to ask a node whose feed is lost, in milliseconds: an agent of an earlier version never answers. */
const againMs = 10_000;

/**
 * Bytes that may arrive of an agent that was told to wait: those under way on a slow connection, and a large message more.
 * Beyond: it does not wait, and is lost with that reason, so that nothing of it queues at its listener. NF3
 */
const waitBytesMax = 4 * 1024 * 1024;

/** Where the feed goes. */
export interface FeedRoom {
  /** False: no room. */
  ready(): boolean;
  send(feed: ActorFeed): void;
}

interface NodeFeedOptions {
  readonly clock: Clock;
  readonly nodes: NodeCalls;
  readonly nodeId: string;
  /** Number of the node's newest message to this listener before; 0: none. */
  readonly sequence: number;
  /** A new id for a question. */
  readonly newCallId: () => string;
  readonly selection: ActorSelection;
  readonly room: FeedRoom;
}

export class NodeFeed {
  readonly #options: NodeFeedOptions;
  #callId = "";
  /** Number of the newest message to the listener. */
  #sequence = 0;
  /** NF2: added to the node's own numbers. */
  #base = 0;
  #isWaiting = false;
  /** Bytes that have arrived since it was told to wait. */
  #waitBytes = 0;
  #isAnswered = false;
  #isLost = false;
  #isStopped = false;
  #timer: TimerHandle | null = null;

  constructor(options: NodeFeedOptions) {
    this.#options = options;
    this.#sequence = options.sequence;
    this.#ask();
  }

  /** Sequence of the newest message; 0 before the node's first answer, and while it is lost. */
  get standing(): number {
    return this.#isLost || !this.#isAnswered ? 0 : this.#sequence;
  }

  /** The same at any time, for NF2. */
  get newest(): number {
    return this.#sequence;
  }

  again(): void {
    if (this.#isAnswered) this.#tell({ pace: InspectionPace.INSPECTION_PACE_AGAIN });
  }

  /** To be called when there may be room again. NF3 */
  pump(): void {
    if (!this.#isWaiting || !this.#options.room.ready()) return;
    [this.#isWaiting, this.#waitBytes] = [false, 0];
    this.#tell({ pace: InspectionPace.INSPECTION_PACE_GO });
  }

  /** Ends it without a word to the listener. */
  stop(): void {
    if (this.#isStopped) return;
    this.#isStopped = true;
    this.#hangUp();
    this.#after(null);
  }

  /** To be called when the node no longer listens here. */
  lose(reason: string): void {
    if (this.#isStopped) return;
    this.#hangUp();
    if (!this.#isLost) {
      this.#isLost = true;
      this.#send(ActorFeed.create({ lost: reason, atMs: this.#options.clock.now() }), this.#sequence + 1);
    }
    this.#after(againMs);
  }

  #ask(): void {
    const { newCallId, nodeId, nodes, selection } = this.#options;
    const callId = newCallId();
    this.#callId = callId;
    this.#isAnswered = false;
    [this.#isWaiting, this.#waitBytes] = [false, 0];
    this.#base = this.#sequence;
    const question = NodeQuestion.create({ callId, inspect: WatchActorsRequest.create({ selection }) });
    const isAsked = nodes.ask(nodeId, question, {
      inspection: async (answer) => this.#take(callId, answer),
      onOver: () => {
        if (this.#callId === callId) this.lose("the node's agent ended its feed, or its connection");
      },
    });
    if (isAsked) this.#after(silenceMs);
    else this.#after(againMs);
  }

  #take(callId: string, { feed, refused }: InspectionAnswer): boolean {
    if (this.#isStopped || this.#callId !== callId) return false;
    this.#isAnswered = true;
    if (refused !== "") {
      this.lose(refused);
      return false;
    }
    this.#after(silenceMs);
    if (feed === null) return true;
    if (this.#isWaiting) this.#waitBytes += ActorFeed.encode(feed).length;
    if (this.#waitBytes > waitBytesMax) {
      this.lose("the node's agent does not wait");
      return false;
    }
    this.#isLost = false;
    this.#send(feed, this.#base + feed.sequence);
    if (!this.#isWaiting && !this.#options.room.ready()) {
      this.#isWaiting = true;
      this.#tell({ pace: InspectionPace.INSPECTION_PACE_WAIT });
    }
    return true;
  }

  /** NF1, NF2 */
  #send(feed: ActorFeed, sequence: number): void {
    this.#sequence = Math.max(this.#sequence, sequence);
    this.#options.room.send(ActorFeed.patch(feed, { process: nodeProcess(this.#options.nodeId), sequence }));
  }

  #hangUp(): void {
    const callId = this.#callId;
    this.#callId = "";
    if (callId !== "") this.#options.nodes.ask(this.#options.nodeId, NodeQuestion.create({ callId, cancel: true }));
  }

  #tell(question: Partial<NodeQuestion>): void {
    const { nodeId, nodes } = this.#options;
    if (this.#callId !== "") nodes.ask(nodeId, NodeQuestion.create({ callId: this.#callId, ...question }));
  }

  /** Waits for the node, or for the next try; null: for nothing. */
  #after(ms: number | null): void {
    const { clock } = this.#options;
    if (this.#timer !== null) clock.clearTimeout(this.#timer);
    this.#timer =
      ms === null
        ? null
        : clock.setTimeout(() => {
            this.#timer = null;
            if (this.#callId === "" && this.#options.room.ready()) this.#ask();
            else if (this.#callId === "") this.#after(againMs);
            else this.lose(this.#isAnswered ? silent : unanswered);
          }, ms);
  }
}

const silent = `the node's agent has been silent for ${silenceMs / 1_000} s`;
const unanswered = "the node's agent does not answer: its version may not have a feed";
