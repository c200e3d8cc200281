/**
 * A manager's side of calls over subjects: accepts the links of nodes, and serves the same handlers as the other edges.
 *
 * NL1: the caller is the node in the subject, which nobody else may publish on: nats-server's permissions say so.
 * NL2: a node's open links and calls, and the bytes of a request, are limited; a node that exceeds them harms only itself.
 * NL3: a node that sends many frames without effect is reported, so that whoever owns its connection ends it.
 */
import { LinkFrame_Kind, type LinkFrame } from "../../proto/gen/messages.ts";
import type { Bus, Clock, Logger, Random } from "../ports/index.ts";
import { RpcError, Status, type Peer } from "../ports/rpc.ts";
import { frameForNode, nodeFramesFor, parseNodeFrame } from "../subjects.ts";
import { AcceptedLinks, type AcceptedLink, type LinkEnds } from "./accepted-links.ts";
import { endFields, Inbox, Outbox, partBytesMax } from "./flow.ts";
import { Link, linkToken } from "./link.ts";
import { methodsOf, ServedConnection, type CallGate, type Caller, type Served, type Service } from "./served.ts";

/** Open links of a node, which needs one or two; with another one, the oldest is closed. */
export const linksPerNodeMax = 8;
/** An agent sends some sixteen openings and signs of life, and what was under way to a manager that was started again. */
export const uselessPerNodeMax = 2_000;
/** Open calls of a link: an agent has about ten, and one for each command in a task. */
export const callsPerLinkMax = 1_000;
/** Bytes queued for a node that does not read; beyond, the stream ends with RESOURCE_EXHAUSTED. As over gRPC. */
const queuedBytesMax = 64 * 1024 * 1024;

interface NodeLinksOptions {
  readonly clock: Clock;
  readonly log: Logger;
  readonly random: Random;
  readonly bus: Pick<Bus, "publish" | "subscribe">;
  readonly managerId: string;
  readonly services: readonly Service[];
  readonly gate: CallGate | null;
  /** The node's identity by its certificate; null: it may open no link. */
  readonly peerOf: (nodeId: string, link: string) => Peer | null;
  /** NATS' `max_payload`. */
  readonly payloadBytesMax: number;
  /** Maximum bytes of a request of the method at that path. */
  readonly requestBytesMax: (path: string) => number;
  /** NL3 */
  readonly onFlood?: (nodeId: string) => void;
}

interface Shared extends Omit<NodeLinksOptions, "services"> {
  readonly methods: ReadonlyMap<string, Served>;
}

interface NodeLinks {
  /** Ends the node's links. */
  end(nodeId: string, reason: string): void;
  close(): void;
}

/** Serves until `close`. */
export function serveNodeLinks(options: NodeLinksOptions): NodeLinks {
  const { bus, managerId, onFlood = () => undefined, peerOf, services } = options;
  const shared: Shared = { ...options, methods: methodsOf(services) };
  const links = new AcceptedLinks({
    ...options,
    down: frameForNode,
    linksMax: linksPerNodeMax,
    whenFull: "close-oldest",
    uselessMax: uselessPerNodeMax,
    onFlood,
    open: (nodeId, link, ends) => {
      const peer = peerOf(nodeId, link);
      return peer === null
        ? "this node has no certificate of the cluster"
        : new ServedLink(shared, { ...ends, peer, down: frameForNode(nodeId, link) });
    },
  });
  const subscription = bus.subscribe(nodeFramesFor(managerId), ({ data, subject }) => {
    const from = parseNodeFrame(subject);
    if (from !== null) links.take(from.nodeId, from.link, data);
  });
  return {
    end: (nodeId, reason) => links.end(nodeId, reason),
    close: () => {
      subscription.unsubscribe();
      links.close("the manager is shutting down");
    },
  };
}

interface ServedLinkOptions extends LinkEnds {
  readonly peer: Peer;
  /** Subject of this side's frames. */
  readonly down: string;
}

interface Call {
  readonly outbox: Outbox;
  readonly inbox: Inbox;
}

class ServedLink implements AcceptedLink {
  readonly #shared: Shared;
  readonly #onOver: () => void;
  readonly #onUseless: () => void;
  readonly #link: Link;
  readonly #served: ServedConnection;
  readonly #calls = new Map<number, Call>();
  #lastCall = 0;

  constructor(shared: Shared, { down, onOver, onUseless, peer }: ServedLinkOptions) {
    const { bus, clock, gate, log, methods, random } = shared;
    this.#shared = shared;
    this.#onOver = onOver;
    this.#onUseless = onUseless;
    this.#link = new Link({
      clock,
      life: linkToken(random),
      sent: 0,
      received: 1,
      publish: (frame) => bus.publish(down, frame),
      onFrame: (frame) => this.#take(frame),
      onBroken: () => {
        this.#over();
        this.#served.broken();
      },
    });
    this.#link.send({ kind: LinkFrame_Kind.WELCOME });
    this.#served = new ServedConnection({
      clock,
      log,
      methods,
      gate,
      peer,
      // The calls have ended, with their reasons.
      close: () => {
        this.#link.close("the node's certificate is no longer valid, or its role has changed");
        this.#over();
      },
    });
  }

  receive(frame: LinkFrame): void {
    if (!this.#link.receive(frame) || frame.kind === LinkFrame_Kind.ALIVE) this.#onUseless();
  }

  close(reason: string): void {
    this.#link.break(reason);
  }

  #over(): void {
    this.#calls.clear();
    this.#onOver();
  }

  #take(frame: LinkFrame): void {
    const { kind, call: id } = frame;
    // Numbers increase: a late part of an ended call begins none.
    if (kind === LinkFrame_Kind.CALL && id > this.#lastCall) {
      this.#lastCall = id;
      this.#begin(frame);
    }
    const call = this.#calls.get(id);
    if (call === undefined) return;
    const { inbox, outbox } = call;
    if (kind === LinkFrame_Kind.TAKEN) outbox.taken(frame.taken);
    else if (kind === LinkFrame_Kind.LAST) inbox.after(() => this.#served.halfClose(id));
    else if (kind === LinkFrame_Kind.CANCEL) {
      this.#forget(id);
      this.#served.cancel(id);
    } else inbox.receive(frame);
  }

  #begin({ call: id, path, timeoutMs, traceparent }: LinkFrame): void {
    const outbox = new Outbox(partBytesMax(this.#shared.payloadBytesMax), (fields) => {
      this.#link.send({ ...fields, call: id });
      if (fields.kind === LinkFrame_Kind.END) this.#calls.delete(id);
    });
    if (this.#calls.size >= callsPerLinkMax) {
      this.#onUseless();
      outbox.frame(endFields(Status.RESOURCE_EXHAUSTED, `more than ${callsPerLinkMax} open calls`, null));
      return;
    }
    const caller = this.#callerOf(id, outbox);
    const messageBytesMax = this.#shared.requestBytesMax(path);
    const inbox = new Inbox({
      messageBytesMax,
      onMessage: (bytes) => this.#served.message(id, bytes),
      onTooLarge: () => {
        this.#served.cancel(id);
        caller.end(
          new RpcError(Status.RESOURCE_EXHAUSTED, `message larger than max (limit ${messageBytesMax} bytes)`),
          "drop",
        );
      },
      onOverrun: () => this.#link.break("the node sends more than its window"),
      onTaken: (taken) => this.#link.send({ kind: LinkFrame_Kind.TAKEN, call: id, taken }),
    });
    this.#calls.set(id, { outbox, inbox });
    this.#served.open(id, path, traceparent, timeoutMs === 0 ? undefined : timeoutMs, caller);
  }

  #callerOf(id: number, outbox: Outbox): Caller {
    const end = (error: RpcError | null, queued: "send" | "drop"): void => {
      this.#calls.get(id)?.inbox.over();
      if (queued === "drop") outbox.drop();
      outbox.frame(endFields(error?.code ?? Status.OK, error?.message ?? "", error?.details ?? null));
    };
    return {
      message: (bytes) => {
        if (outbox.bufferedBytes <= queuedBytesMax) {
          outbox.message(bytes);
          return;
        }
        this.#served.cancel(id);
        end(new RpcError(Status.RESOURCE_EXHAUSTED, "the receiver of this stream is too slow"), "drop");
      },
      answer: (bytes) => outbox.message(bytes, { last: endFields(Status.OK, "", null) }),
      end,
      bufferedBytes: () => outbox.bufferedBytes,
      pause: () => this.#calls.get(id)?.inbox.pause(),
      resume: () => this.#calls.get(id)?.inbox.resume(),
    };
  }

  #forget(id: number): void {
    const call = this.#calls.get(id);
    this.#calls.delete(id);
    call?.inbox.over();
    call?.outbox.drop();
  }
}
