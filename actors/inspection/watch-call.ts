/**
 * One call of Watch, on the manager that the client called: merges the feeds of this manager and its nodes, and of the other
 * managers and theirs.
 *
 * WC1: messages that the client does not read wait where they arise: at most `clientBytesMax`, a window for each other manager, and one
 *      message for each node wait here.
 * WC2: each process that was followed and no longer can be has a message with `lost`, and then a snapshot or nothing.
 */
import { isSelectedProcess, managerProcess, partsOf } from "../../machines/inspection/selection.ts";
import { follow, isBehind, type FeedProgress } from "../../machines/inspection/progress.ts";
import { leaseTimes } from "../../machines/inspection/lease.machine.ts";
import { ActorFeed, type ActorSelection, type FeedPublication, type FeedStanding } from "../../proto/gen/messages.ts";
import type { TimerHandle } from "../../runtime/ports/index.ts";
import type { Sink } from "../../runtime/ports/rpc.ts";
import type { Environment } from "../environment.ts";
import { ManagerFeed } from "./manager-feed.ts";
import { FeedOutlet, type FeedSources } from "./outlet.ts";

/** Bytes that wait for the client; beyond it the sources wait. */
const clientBytesMax = 1024 * 1024;
/** Interval of checking whether a slow client has read, in milliseconds. */
const roomLookMs = 20;
/** Interval of comparing the managers with the replica's, in milliseconds. */
const lookMs = leaseTimes.renewalMs;
/** A chosen node that no manager has fed by then, in milliseconds, cannot be reached: two renewals of every manager. */
const reachMs = 2 * (leaseTimes.renewalMs + leaseTimes.askTimeoutMs);

interface WatchCallOptions {
  readonly id: string;
  readonly selection: ActorSelection;
  readonly sink: Sink<ActorFeed>;
}

export class WatchCall {
  readonly #env: Environment;
  readonly #options: WatchCallOptions;
  readonly #outlet: FeedOutlet;
  /** By id: the other managers. */
  readonly #managers = new Map<string, ManagerFeed>();
  readonly #progress = new Map<string, FeedProgress>();
  /** Processes whose loss the client knows. */
  readonly #lost = new Set<string>();
  readonly #sinceMs: number;
  #room: TimerHandle | null = null;
  #look: TimerHandle | null = null;

  constructor(sources: FeedSources, options: WatchCallOptions) {
    this.#env = sources.env;
    this.#options = options;
    this.#sinceMs = this.#env.clock.monotonic();
    const room = { ready: () => this.#isReady(), send: (feed: ActorFeed) => this.#take(ownOutlet, feed) };
    this.#outlet = new FeedOutlet(sources, options.selection, room);
    this.#compare();
  }

  take(publication: FeedPublication, bytes: number): void {
    const manager = this.#managers.get(publication.holder);
    manager?.take(publication, bytes);
    if (this.#isReady()) manager?.pump();
  }

  stop(): void {
    const { clock } = this.#env;
    for (const timer of [this.#room, this.#look]) if (timer !== null) clock.clearTimeout(timer);
    this.#outlet.stop();
    for (const manager of this.#managers.values()) manager.stop();
    this.#managers.clear();
  }

  /** WC1 */
  #isReady(): boolean {
    const isReady = this.#options.sink.bufferedBytes() <= clientBytesMax;
    if (!isReady) this.#room ??= this.#env.clock.setTimeout(() => this.#pump(), roomLookMs);
    return isReady;
  }

  #pump(): void {
    this.#room = null;
    if (!this.#isReady()) return;
    this.#outlet.pump();
    for (const manager of this.#managers.values()) manager.pump();
  }

  #take(outlet: string, feed: ActorFeed): void {
    const { process } = feed;
    const { kind, progress } = follow(this.#progress.get(process) ?? null, outlet, feed);
    if (progress === null) this.#progress.delete(process);
    else this.#progress.set(process, progress);
    if (kind === "gap") this.#again(outlet, process);
    if (kind !== "pass") return;
    if (feed.lost === "") this.#lost.delete(process);
    else this.#lost.add(process);
    this.#options.sink.write(feed);
  }

  #again(outlet: string, process: string): void {
    if (outlet === ownOutlet) this.#outlet.again([process]);
    else this.#managers.get(this.#managerOf(outlet))?.wantAgain(process);
  }

  #managerOf(outlet: string): string {
    for (const [id, manager] of this.#managers) if (manager.outlet === outlet) return id;
    return "";
  }

  /** WC2 */
  #lose(process: string, reason: string): void {
    const sequence = (this.#progress.get(process)?.sequence ?? 0) + 1;
    this.#progress.delete(process);
    if (this.#lost.has(process)) return;
    this.#lost.add(process);
    this.#options.sink.write(ActorFeed.create({ process, sequence, atMs: this.#env.clock.now(), lost: reason }));
  }

  #loseManager(managerId: string, outlet: string, reason: string): void {
    const process = managerProcess(managerId);
    if (isSelectedProcess(this.#options.selection, process)) this.#lose(process, reason);
    for (const [each, { outlet: from }] of this.#progress)
      if (from === outlet) this.#lose(each, `manager ${managerId}, which the node was connected to: ${reason}`);
  }

  #compareStandings(
    outlet: string,
    { arrived, now }: { readonly now: readonly FeedStanding[]; readonly arrived: readonly FeedStanding[] },
  ): void {
    for (const { process, sequence } of arrived)
      if (isBehind(this.#progress.get(process) ?? null, outlet, sequence)) this.#again(outlet, process);
    const held = new Set(now.map(({ process }) => process));
    for (const [process, { outlet: from }] of this.#progress)
      if (from === outlet && !held.has(process)) this.#lose(process, "the manager has no feed of it any more");
  }

  /** Follows the managers that the replica has. */
  #compare(): void {
    const { clock, managerId: own, store } = this.#env;
    const { id: listener, selection } = this.#options;
    const wanted = new Set<string>();
    for (const { id } of store.all("manager")) if (id !== own && this.#concerns(id)) wanted.add(id);
    for (const [id, manager] of this.#managers) {
      if (wanted.has(id)) continue;
      this.#managers.delete(id);
      manager.stop();
      this.#loseManager(id, manager.outlet, "it is no longer a manager of the cluster");
    }
    for (const managerId of wanted) {
      if (this.#managers.has(managerId)) continue;
      const manager = new ManagerFeed(this.#env, {
        listener,
        managerId,
        selection,
        onFeed: (outlet, feed) => this.#take(outlet, feed),
        onStandings: (outlet, standings) => this.#compareStandings(outlet, standings),
        onLost: (outlet, reason) => this.#loseManager(managerId, outlet, reason),
        hasRoom: () => this.#isReady(),
      });
      this.#managers.set(managerId, manager);
    }
    if (clock.monotonic() - this.#sinceMs >= reachMs) this.#loseUnreached();
    this.#look = clock.setTimeout(() => this.#compare(), lookMs);
  }

  /** Any manager may be the one that a node is connected to. */
  #concerns(managerId: string): boolean {
    const { processes } = this.#options.selection;
    if (processes.length === 0) return true;
    return processes.includes(managerProcess(managerId)) || processes.some(isNode);
  }

  #loseUnreached(): void {
    for (const process of this.#options.selection.processes)
      if (isNode(process) && !this.#progress.has(process)) this.#lose(process, unreached);
  }
}

/** The outlet of this manager; others' have ids. */
const ownOutlet = "own";
const isNode = (process: string): boolean => partsOf(process)?.kind === "node";
const unreached = "the node's agent is not connected to a manager that can be reached, or is not an agent of Muster";
