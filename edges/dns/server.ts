/**
 * A name server over UDP and TCP: answers questions, and forwards those for other servers.
 *
 * DS1: no input ends the server or keeps it from serving others: connections, outstanding questions per connection and idle
 *      time are bounded; a connection beyond a limit is closed.
 */
import { createSocket, type Socket as UdpSocket } from "node:dgram";
import { once } from "node:events";
import { createServer, type Server as TcpServer, type Socket } from "node:net";
import type { NameServerOptions, NameServers, OpenNameServer } from "../../runtime/ports/name-server.ts";
import { Forwarder } from "./forwarder.ts";
import { failure, readQuestion, replyTo } from "./packets.ts";
import { TcpMessages, tcpMessage } from "./tcp-messages.ts";

/** DS1. */
const connectionsMax = 256;
const connectionIdleMs = 10_000;
const underWayMax = 64;
const unreadBytesMax = 256 * 1024;
/** The largest value of the two length bytes. */
const tcpBytesMax = 65_535;

interface Incoming {
  readonly raw: Buffer;
  readonly from: string;
  readonly isOverTcp: boolean;
}

/** `nodeServers`: this node's name servers, read for each question because they may change. */
export function createNameServers(nodeServers: () => readonly string[]): NameServers {
  return {
    async open(options) {
      const server = new Server(options, nodeServers);
      await server.listen();
      return server;
    },
  };
}

class Server implements OpenNameServer {
  readonly #options: NameServerOptions;
  readonly #nodeServers: () => readonly string[];
  readonly #forwarder = new Forwarder();
  readonly #udp: UdpSocket;
  readonly #tcp: TcpServer;
  readonly #connections = new Set<Socket>();
  #isClosed = false;

  constructor(options: NameServerOptions, nodeServers: () => readonly string[]) {
    this.#options = options;
    this.#nodeServers = nodeServers;
    this.#udp = createSocket(options.address.includes(":") ? "udp6" : "udp4");
    this.#tcp = createServer((socket) => this.#connected(socket));
    this.#tcp.maxConnections = connectionsMax;
  }

  get port(): number {
    return this.#udp.address().port;
  }

  async listen(): Promise<void> {
    const { address, port } = this.#options;
    try {
      this.#udp.bind({ address, port, exclusive: true });
      await once(this.#udp, "listening");
      this.#tcp.listen({ host: address, port: this.port, exclusive: true });
      await once(this.#tcp, "listening");
    } catch (error) {
      await this.close();
      throw error;
    }
    this.#udp.on("message", (raw, { address: from, port: to }) => void this.#datagram(raw, from, to));
    for (const socket of [this.#udp, this.#tcp]) socket.on("error", (error: Error) => void this.#lost(error));
  }

  async close(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    for (const socket of this.#connections) socket.destroy();
    // Either may not have started listening.
    const udp = new Promise<void>((resolve) => this.#udp.close(() => resolve()));
    const tcp = new Promise<void>((resolve) => this.#tcp.close(() => resolve()));
    await Promise.all([udp, tcp]);
  }

  async #lost(error: Error): Promise<void> {
    if (this.#isClosed) return;
    await this.close();
    this.#options.onLost(error.message);
  }

  async #datagram(raw: Buffer, from: string, port: number): Promise<void> {
    const reply = await this.#reply({ raw, from, isOverTcp: false });
    // A client that has left reads nothing.
    if (reply !== null && !this.#isClosed) this.#udp.send(reply, port, from, () => {});
  }

  #connected(socket: Socket): void {
    const messages = new TcpMessages();
    const from = (socket.remoteAddress ?? "").replace(/^::ffff:/, "");
    let underWay = 0;
    this.#connections.add(socket);
    socket.setTimeout(connectionIdleMs, () => socket.destroy());
    socket.on("close", () => this.#connections.delete(socket));
    socket.on("error", () => socket.destroy());
    const answer = async (raw: Buffer): Promise<void> => {
      underWay += 1;
      const reply = await this.#reply({ raw, from, isOverTcp: true });
      underWay -= 1;
      if (reply !== null && !socket.destroyed) socket.write(tcpMessage(reply));
    };
    socket.on("data", (data: Buffer) => {
      for (const raw of messages.take(data)) {
        if (underWay >= underWayMax || socket.writableLength > unreadBytesMax) return void socket.destroy();
        void answer(raw);
      }
    });
  }

  /** Null: no reply. */
  async #reply({ from, isOverTcp, raw }: Incoming): Promise<Buffer | null> {
    const read = readQuestion(raw);
    if (read.kind !== "question") return read.kind === "answered" ? read.reply : null;
    const { question } = read;
    const reply = await this.#options.answer({ from, name: question.name, type: question.type });
    if (reply.kind !== "forward") return replyTo(question, reply, isOverTcp ? tcpBytesMax : question.udpMax);
    const servers = reply.servers.length > 0 ? reply.servers : this.#nodeServers();
    return (await this.#forwarder.forward({ raw, from, isOverTcp, servers })) ?? failure(question);
  }
}
