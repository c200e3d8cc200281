/**
 * A node's calls to one manager over subjects: an `RpcChannel` like that of `edges/grpc/client.ts`.
 *
 * C1: a call ends once at the caller: with its answer, with an error, or by cancellation.
 * C2: nothing reaches the caller after the link has ended.
 */
import type { MethodDescriptor, WireMethod } from "../../proto/codec.ts";
import { decodedOrNull } from "../../proto/codec.ts";
import { LinkFrame_Kind, type LinkFrame } from "../../proto/gen/messages.ts";
import type { Bus, Clock, Random, Subscription } from "../ports/index.ts";
import {
  RpcError,
  Status,
  type DuplexCall,
  type DuplexChannel,
  type ReceivingCall,
  type SendingCall,
} from "../ports/rpc.ts";
import { frameForNode, nodeFrame } from "../subjects.ts";
import { Inbox, Outbox, partBytesMax } from "./flow.ts";
import { Link, linkToken } from "./link.ts";
import { openLink, type Opened } from "./open-link.ts";

/** Maximum size of an answer: as over gRPC, since the assignments of a full node are far larger than a request may be. */
const messageBytesMax = 64 * 1024 * 1024;

interface NodeLinkOptions {
  readonly clock: Clock;
  readonly random: Random;
  readonly bus: Pick<Bus, "publish" | "subscribe">;
  readonly nodeId: string;
  readonly managerId: string;
  /** NATS' `max_payload`. */
  readonly payloadBytesMax: number;
}

/** Resolves once the manager has accepted the link; rejects with RpcError UNAVAILABLE. */
export function openNodeLink(options: NodeLinkOptions): Promise<NodeLink> {
  const { managerId, nodeId, random } = options;
  const id = linkToken(random);
  const up = nodeFrame(nodeId, managerId, id);
  return openLink({ ...options, up, down: frameForNode(nodeId, id) }, (opened) => new NodeLink(options, up, opened));
}

interface Call {
  readonly outbox: Outbox;
  readonly inbox: Inbox;
  /** Null: status OK. Called once, after all messages. */
  readonly onEnd: (error: RpcError | null) => void;
}

interface Receiver<Response> {
  onMessage(message: Response): void;
  onEnd(error: RpcError | null): void;
}

interface BeginOptions {
  readonly timeoutMs?: number | undefined;
  readonly traceparent?: string | undefined;
}

class NodeLink implements DuplexChannel {
  readonly #clock: Clock;
  readonly #partBytes: number;
  readonly #link: Link;
  readonly #calls = new Map<number, Call>();
  readonly #closedListeners = new Set<() => void>();
  readonly #subscription: Subscription;
  #nextCall = 1;

  /** `up`: subject of this side's frames. */
  constructor({ bus, clock, payloadBytesMax }: NodeLinkOptions, up: string, { life, subscription }: Opened) {
    this.#clock = clock;
    this.#partBytes = partBytesMax(payloadBytesMax);
    this.#subscription = subscription;
    this.#link = new Link({
      clock,
      life,
      sent: 1,
      received: 1,
      publish: (frame) => bus.publish(up, frame),
      onFrame: (frame) => this.#take(frame),
      onBroken: (reason) => {
        subscription.unsubscribe();
        this.#endAll(new RpcError(Status.UNAVAILABLE, `the link broke: ${reason}`));
        for (const listener of this.#closedListeners) listener();
      },
    });
  }

  receive(frame: LinkFrame): void {
    this.#link.receive(frame);
  }

  unary<Request, Response>(
    method: MethodDescriptor<Request, Response>,
    request: Request,
    options: { timeoutMs?: number; traceparent?: string } = {},
  ): Promise<Response> {
    return new Promise((resolve, reject) => {
      let response: { readonly message: Response } | null = null;
      const { timeoutMs } = options;
      const call = this.#begin(method, options, method.request.encode(request), {
        onMessage: (message: Response) => (response = { message }),
        onEnd: (error) => {
          if (timer !== null) this.#clock.clearTimeout(timer);
          if (error !== null) reject(error);
          else if (response === null) reject(new RpcError(Status.INTERNAL, "no response"));
          else resolve(response.message);
        },
      });
      const timer =
        timeoutMs === undefined
          ? null
          : this.#clock.setTimeout(
              () => this.#fail(call, new RpcError(Status.DEADLINE_EXCEEDED, `no answer within ${timeoutMs} ms`)),
              timeoutMs,
            );
    });
  }

  serverStream<Request, Response>(
    method: WireMethod<Request, Response>,
    request: Request,
    receiver: Receiver<Response>,
    options: { readonly traceparent?: string } = {},
  ): ReceivingCall {
    return this.#receiving(this.#begin(method, options, method.request.encode(request), receiver));
  }

  clientStream<Request, Response>(
    method: MethodDescriptor<Request, Response>,
    onEnd: () => void = () => {},
  ): SendingCall<Request, Response> {
    const { promise, reject, resolve } = Promise.withResolvers<Response>();
    // Its outcome concerns only those who wait for it.
    promise.catch(() => {});
    let isCancelled = false;
    const call = this.#begin(method, {}, null, {
      onMessage: (message: Response) => resolve(message),
      onEnd: (error) => {
        // No effect after an answer.
        reject(error ?? new RpcError(Status.INTERNAL, "no response"));
        if (!isCancelled) onEnd();
      },
    });
    return {
      ...this.#sending(call, method),
      finish: () => {
        this.#finish(call);
        return promise;
      },
      cancel: () => {
        isCancelled = true;
        this.#fail(call, new RpcError(Status.CANCELLED, "cancelled"));
      },
    };
  }

  duplexStream<Request, Response>(
    method: MethodDescriptor<Request, Response>,
    receiver: Receiver<Response>,
  ): DuplexCall<Request> {
    const call = this.#begin(method, {}, null, receiver);
    return { ...this.#receiving(call), ...this.#sending(call, method), finish: () => this.#finish(call) };
  }

  close(): void {
    if (!this.#link.isOpen) return;
    this.#link.close("");
    this.#subscription.unsubscribe();
    this.#endAll(new RpcError(Status.CANCELLED, "the channel was closed"));
  }

  /** The connection that carries the link has ended. */
  lost(reason: string): void {
    this.#link.break(reason);
  }

  onClosed(listener: () => void): void {
    this.#closedListeners.add(listener);
  }

  /** `request`: the only message; null: messages follow. */
  #begin<Response>(
    method: Pick<WireMethod<never, Response>, "path" | "response">,
    { timeoutMs = 0, traceparent = "" }: BeginOptions,
    request: Uint8Array | null,
    { onEnd, onMessage }: Receiver<Response>,
  ): number {
    const call = this.#nextCall++;
    const outbox = new Outbox(this.#partBytes, (fields) => this.#link.send({ ...fields, call }));
    const inbox = new Inbox({
      messageBytesMax,
      onMessage: (bytes) => {
        const message = decodedOrNull(method.response, bytes);
        if (message === null) this.#fail(call, new RpcError(Status.INTERNAL, "malformed answer"));
        else onMessage(message);
      },
      onTooLarge: () =>
        this.#fail(call, new RpcError(Status.RESOURCE_EXHAUSTED, `answer larger than ${messageBytesMax} bytes`)),
      onOverrun: () => this.#link.break("the manager sends more than its window"),
      onTaken: (taken) => this.#link.send({ kind: LinkFrame_Kind.TAKEN, call, taken }),
    });
    this.#calls.set(call, { outbox, inbox, onEnd });
    if (!this.#link.isOpen) {
      // Only after the caller has returned.
      this.#clock.soon(() => this.#end(call, new RpcError(Status.UNAVAILABLE, "the link is closed")));
      return call;
    }
    const first = { kind: LinkFrame_Kind.CALL, path: method.path, traceparent, timeoutMs: Math.ceil(timeoutMs) };
    if (request === null) outbox.frame(first);
    else outbox.message(request, { first });
    return call;
  }

  #receiving(call: number): ReceivingCall {
    return {
      cancel: () => this.#cancel(call),
      pause: () => this.#calls.get(call)?.inbox.pause(),
      resume: () => this.#calls.get(call)?.inbox.resume(),
    };
  }

  #sending<Request>(call: number, method: MethodDescriptor<Request, never> | MethodDescriptor<Request, unknown>) {
    return {
      write: (message: Request) => this.#calls.get(call)?.outbox.message(method.request.encode(message)),
      bufferedBytes: () => this.#calls.get(call)?.outbox.bufferedBytes ?? 0,
    };
  }

  #finish(call: number): void {
    this.#calls.get(call)?.outbox.frame({ kind: LinkFrame_Kind.LAST });
  }

  #take(frame: LinkFrame): void {
    const call = this.#calls.get(frame.call);
    if (call === undefined) return;
    const { inbox, outbox } = call;
    if (frame.kind === LinkFrame_Kind.TAKEN) outbox.taken(frame.taken);
    inbox.receive(frame);
    if (frame.kind === LinkFrame_Kind.END) inbox.after(() => this.#end(frame.call, errorOf(frame)));
  }

  /** Ends the call on both sides; the caller is not notified. */
  #cancel(call: number): void {
    const open = this.#calls.get(call);
    if (open === undefined) return;
    this.#calls.delete(call);
    open.inbox.over();
    open.outbox.drop();
    this.#link.send({ kind: LinkFrame_Kind.CANCEL, call });
  }

  /** The same, and notifies the caller. */
  #fail(call: number, error: RpcError): void {
    const open = this.#calls.get(call);
    this.#cancel(call);
    open?.onEnd(error);
  }

  #end(id: number, error: RpcError | null): void {
    const call = this.#calls.get(id);
    this.#calls.delete(id);
    call?.inbox.over();
    call?.onEnd(error);
  }

  #endAll(error: RpcError): void {
    for (const id of Array.from(this.#calls.keys())) this.#end(id, error);
  }
}

export type { NodeLink };

/** Null: status OK. */
function errorOf({ code, details, text }: LinkFrame): RpcError | null {
  if (code === Status.OK) return null;
  const known = code <= Status.UNAUTHENTICATED ? (code as Status) : Status.UNKNOWN;
  return new RpcError(known, text, details.length === 0 ? {} : { details });
}
