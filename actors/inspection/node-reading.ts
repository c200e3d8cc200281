/**
 * Reads what one node's agent keeps of its last minutes, over the connection that the agent has with this manager.
 *
 * NR1: a part of a node counts as that node's, whatever process it names, and has nothing that only managers know.
 */
import { nodeProcess } from "../../machines/inspection/selection.ts";
import {
  ActorFeed,
  NodeQuestion,
  RecentReply,
  RecordedLine,
  RecordedSpan,
  RecordingPart,
  type InspectionAnswer,
  type RecentQuestion,
} from "../../proto/gen/messages.ts";
import type { Clock } from "../../runtime/ports/index.ts";
import type { NodeCalls } from "../node-calls.ts";

/** For an agent's answer, in milliseconds; one of an earlier version never answers. */
const answerMs = 5_000;

interface NodeReadingOptions {
  readonly clock: Clock;
  readonly nodes: NodeCalls;
  readonly nodeId: string;
  readonly callId: string;
}

export class NodeReading {
  readonly #options: NodeReadingOptions;
  #number = 0;
  #reply: Promise<RecentReply> = Promise.resolve(RecentReply.create());
  #answer: ((reply: RecentReply) => void) | null = null;

  constructor(options: NodeReadingOptions) {
    this.#options = options;
  }

  /** As `RecordingReader.next`. */
  next(question: RecentQuestion): Promise<RecentReply> {
    if (question.number !== this.#number) {
      this.#number = question.number;
      this.#reply = this.#ask(question);
    }
    return this.#reply;
  }

  stop(): void {
    const { callId, nodeId, nodes } = this.#options;
    nodes.ask(nodeId, NodeQuestion.create({ callId, cancel: true }));
    this.#fail("the reading was given up");
  }

  #ask(recent: RecentQuestion): Promise<RecentReply> {
    const { callId, clock, nodeId, nodes } = this.#options;
    const { promise, resolve } = Promise.withResolvers<RecentReply>();
    const timer = clock.setTimeout(() => this.#fail("the node's agent does not answer"), answerMs);
    this.#answer = (reply) => {
      this.#answer = null;
      clock.clearTimeout(timer);
      resolve(reply);
    };
    const question = NodeQuestion.create({ callId, recent });
    const asker = {
      inspection: async (answer: InspectionAnswer) => this.#take(answer),
      onOver: () => this.#fail("the node's agent ended its answers, or its connection"),
    };
    if (!nodes.ask(nodeId, question, recent.number === 1 ? asker : undefined))
      this.#fail("the node's agent is no longer connected to this manager");
    return promise;
  }

  #take({ recent, refused }: InspectionAnswer): boolean {
    if (recent !== null) this.#answer?.(this.#own(recent));
    else if (refused !== "") this.#fail(refused);
    return true;
  }

  /** NR1 */
  #own({ ended, failed, parts }: RecentReply): RecentReply {
    const process = nodeProcess(this.#options.nodeId);
    const own = parts.map(({ feed, line, span }) =>
      RecordingPart.create({
        feed: feed === null ? null : ActorFeed.patch(feed, { process }),
        line: line === null ? null : RecordedLine.patch(line, { process }),
        span: span === null ? null : RecordedSpan.patch(span, { process }),
      }),
    );
    return RecentReply.create({ ended, failed, parts: own });
  }

  #fail(failed: string): void {
    this.#answer?.(RecentReply.create({ failed }));
  }
}
