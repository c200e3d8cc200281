/**
 * Everything that this manager feeds to one listener: its own process, and the agents of the nodes whose sessions are here.
 *
 * FO1: the feed of a node comes from the manager that has the node's session, and from no other.
 */
import { isSelectedProcess, nodeProcess } from "../../machines/inspection/selection.ts";
import { FeedStanding, type ActorSelection } from "../../proto/gen/messages.ts";
import { newId } from "../../runtime/ids.ts";
import type { Random, Subscription, TimerHandle } from "../../runtime/ports/index.ts";
import type { Environment } from "../environment.ts";
import type { NodeCalls } from "../node-calls.ts";
import { NodeFeed, type FeedRoom } from "./node-feed.ts";
import type { FeedHandle, ProcessFeed } from "./process-feed.ts";

/** Interval of comparing the nodes with the sessions in the replica, in milliseconds. */
const lookMs = 1_000;

export interface FeedSources {
  readonly env: Environment;
  readonly ids: Random;
  readonly own: ProcessFeed;
  readonly nodes: NodeCalls;
}

export class FeedOutlet {
  readonly #sources: FeedSources;
  readonly #selection: ActorSelection;
  readonly #room: FeedRoom;
  readonly #own: FeedHandle | null;
  readonly #nodes = new Map<string, NodeFeed>();
  /** By node: the stream on which it listens. */
  readonly #streams = new Map<string, object>();
  /** By node: the sequence of its newest message. */
  readonly #sequences = new Map<string, number>();
  readonly #listening: Subscription;
  #ownSequence = 0;
  #timer: TimerHandle | null = null;

  constructor(sources: FeedSources, selection: ActorSelection, room: FeedRoom) {
    this.#sources = sources;
    this.#selection = selection;
    this.#room = room;
    const { nodes, own } = sources;
    this.#own = !isSelectedProcess(selection, own.process)
      ? null
      : own.listen(selection, {
          ready: () => room.ready(),
          onFeed: (feed) => {
            this.#ownSequence = feed.sequence;
            room.send(feed);
          },
        });
    this.#listening = nodes.onListening((nodeId) => {
      const stream = {};
      this.#streams.set(nodeId, stream);
      this.#lose(nodeId, "the node's agent has connected anew");
      this.#open(nodeId);
      return () => {
        // Not that of an earlier connection.
        if (this.#streams.get(nodeId) !== stream) return;
        this.#streams.delete(nodeId);
        this.#lose(nodeId, "the node's agent has lost its connection");
      };
    });
    this.#look();
  }

  standings(): readonly FeedStanding[] {
    const standings = [...this.#nodes].map(([nodeId, { standing }]) => ({
      process: nodeProcess(nodeId),
      sequence: standing,
    }));
    if (this.#own !== null) standings.push({ process: this.#sources.own.process, sequence: this.#ownSequence });
    return standings.filter(({ sequence }) => sequence > 0).map((each) => FeedStanding.create(each));
  }

  /** Sends the snapshots of these processes again. */
  again(processes: readonly string[]): void {
    const wanted = new Set(processes);
    if (wanted.has(this.#sources.own.process)) this.#own?.again();
    for (const [nodeId, feed] of this.#nodes) if (wanted.has(nodeProcess(nodeId))) feed.again();
  }

  /** To be called when there is room again. */
  pump(): void {
    for (const feed of this.#nodes.values()) feed.pump();
  }

  stop(): void {
    if (this.#timer !== null) this.#sources.env.clock.clearTimeout(this.#timer);
    this.#timer = null;
    this.#listening.unsubscribe();
    this.#own?.close();
    for (const feed of this.#nodes.values()) feed.stop();
    this.#nodes.clear();
  }

  /** FO1 */
  #look(): void {
    const { env, nodes } = this.#sources;
    const { clock } = env;
    const listening = new Set(nodes.listening());
    for (const nodeId of this.#nodes.keys())
      if (!listening.has(nodeId) || !this.#isHere(nodeId)) this.#lose(nodeId, "the node's agent has left this manager");
    for (const nodeId of listening) this.#open(nodeId);
    if (this.#timer !== null) clock.clearTimeout(this.#timer);
    this.#timer = clock.setTimeout(() => this.#look(), lookMs);
  }

  #open(nodeId: string): void {
    const { env, ids, nodes } = this.#sources;
    if (this.#nodes.has(nodeId) || !this.#isHere(nodeId)) return;
    if (!isSelectedProcess(this.#selection, nodeProcess(nodeId))) return;
    const { clock } = env;
    const sequence = this.#sequences.get(nodeId) ?? 0;
    const [selection, room, newCallId] = [this.#selection, this.#room, () => newId(ids)];
    this.#nodes.set(nodeId, new NodeFeed({ clock, nodes, nodeId, sequence, newCallId, selection, room }));
  }

  #lose(nodeId: string, reason: string): void {
    const feed = this.#nodes.get(nodeId);
    if (feed === undefined) return;
    this.#nodes.delete(nodeId);
    feed.lose(reason);
    feed.stop();
    this.#sequences.set(nodeId, feed.newest);
  }

  #isHere(nodeId: string): boolean {
    const record = this.#sources.env.store.get("session", nodeId);
    return record === undefined || record.managerId === this.#sources.env.managerId;
  }
}
