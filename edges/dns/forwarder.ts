/**
 * Forwards questions that this server cannot answer to other name servers.
 *
 * DF1: a question is sent from an unpredictable port with an unpredictable id; a reply counts only if it comes from the
 *      server asked and repeats the question.
 * DF2: when a server fails or does not answer, the next one is asked; all are asked twice before the question fails. This ends
 *      before a resolver asks again (5 s, resolv.conf(5)).
 * DF3: outstanding questions are bounded, in total and per task; beyond the limit a question fails at once.
 */
import { randomInt } from "node:crypto";
import { createSocket } from "node:dgram";
import { connect, isIP, isIPv6 } from "node:net";
import { codeOf, isReplyTo, numbered } from "./packets.ts";
import { TcpMessages, tcpMessage } from "./tcp-messages.ts";

/** Timeout of one attempt, in milliseconds. A distant server answers in some 300. */
const tryMs = 1_500;
const totalMs = 4_500;
const rounds = 2;
/** DF3: each question takes a socket. */
const outstandingMax = 1_024;
const outstandingMaxEach = 128;
/** Response codes after which another server may know more: SERVFAIL, NOTIMP and REFUSED. */
const unhelpful: readonly number[] = [2, 4, 5];
const port = 53;

interface Forwarded {
  readonly raw: Buffer;
  /** The asking task's address. */
  readonly from: string;
  readonly isOverTcp: boolean;
  /** Addresses, optionally followed by `#` and a port. */
  readonly servers: readonly string[];
}

export class Forwarder {
  readonly #outstanding = new Map<string, number>();
  #total = 0;

  /** Null if no server answers, or at a limit (DF3). */
  async forward({ from, isOverTcp, raw, servers }: Forwarded): Promise<Buffer | null> {
    const own = this.#outstanding.get(from) ?? 0;
    if (this.#total >= outstandingMax || own >= outstandingMaxEach) return null;
    this.#total += 1;
    this.#outstanding.set(from, own + 1);
    try {
      return await askAll(raw, servers, isOverTcp ? askOverTcp : askOverUdp);
    } finally {
      this.#total -= 1;
      const left = (this.#outstanding.get(from) ?? 1) - 1;
      if (left === 0) this.#outstanding.delete(from);
      else this.#outstanding.set(from, left);
    }
  }
}

interface Server {
  readonly address: string;
  readonly port: number;
}

type Ask = (question: Buffer, id: number, server: Server, signal: AbortSignal) => Promise<Buffer | null>;

/** DF2 */
async function askAll(raw: Buffer, servers: readonly string[], ask: Ask): Promise<Buffer | null> {
  const deadline = performance.now() + totalMs;
  let last: Buffer | null = null;
  for (let round = 0; round < rounds; round += 1) {
    for (const text of servers) {
      const leftMs = deadline - performance.now();
      if (leftMs <= 0) return last;
      const [address = "", at] = text.split("#");
      if (isIP(address) === 0) continue;
      const id = randomInt(65_536);
      const signal = AbortSignal.timeout(Math.ceil(Math.min(leftMs, tryMs)));
      const reply = await ask(numbered(raw, id), id, { address, port: Number(at ?? port) }, signal);
      if (reply === null) continue;
      last = numbered(reply, raw.readUInt16BE(0));
      if (!unhelpful.includes(codeOf(reply))) return last;
    }
  }
  return last;
}

/** DF1. After a truncated reply, the client asks again over TCP. */
function askOverUdp(question: Buffer, id: number, server: Server, signal: AbortSignal): Promise<Buffer | null> {
  return new Promise((resolve) => {
    const socket = createSocket({ type: isIPv6(server.address) ? "udp6" : "udp4", signal });
    socket.on("close", () => resolve(null));
    // The server does not listen, or is unreachable.
    socket.on("error", () => resolve(null));
    socket.on("message", (reply) => {
      if (!isReplyTo(reply, question, id)) return;
      resolve(reply);
      socket.close();
    });
    socket.connect(server.port, server.address, () => socket.send(question));
  });
}

function askOverTcp(question: Buffer, id: number, server: Server, signal: AbortSignal): Promise<Buffer | null> {
  return new Promise((resolve) => {
    const socket = connect({ host: server.address, port: server.port, signal });
    const messages = new TcpMessages();
    socket.on("close", () => resolve(null));
    socket.on("error", () => resolve(null));
    socket.on("data", (data: Buffer) => {
      const [reply] = messages.take(data);
      if (reply === undefined) return;
      resolve(isReplyTo(reply, question, id) ? reply : null);
      socket.destroy();
    });
    socket.on("connect", () => socket.write(tcpMessage(question)));
  });
}
