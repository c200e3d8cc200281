/**
 * A minimal WebSocket for the benchmark, so that thousands of clients in one process do not use the CPU time of the server that
 * they measure: text messages in single frames, and answers to pings.
 */
import { once } from "node:events";
import { connect, type TLSSocket } from "node:tls";

type OnMessage = (payload: Buffer) => void;

const opcodes = { text: 1, ping: 9, pong: 10 } as const;
const maskBytes = 4;

export class FramedSocket {
  readonly #socket: TLSSocket;
  readonly #onMessage: OnMessage;
  /** Received parts of an incomplete message. */
  #parts: Buffer[] = [];
  #bytes = 0;
  #wanted = 0;

  private constructor(socket: TLSSocket, onMessage: OnMessage) {
    this.#socket = socket;
    this.#onMessage = onMessage;
  }

  static async open(port: number, onMessage: OnMessage): Promise<FramedSocket> {
    const socket = connect({ port, host: "localhost", rejectUnauthorized: false });
    await once(socket, "secureConnect");
    socket.write(
      `GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n` +
        `Sec-WebSocket-Key: bm90IG11Y2ggYSBub25jZQ==\r\n\r\n`,
    );
    const [answer] = (await once(socket, "data")) as [Buffer];
    if (!answer.subarray(0, 12).equals(Buffer.from("HTTP/1.1 101"))) throw new Error(answer.toString());
    const framed = new FramedSocket(socket, onMessage);
    socket.on("data", (chunk: Buffer) => framed.#take(chunk));
    return framed;
  }

  send(text: string): void {
    this.#write(opcodes.text, Buffer.from(text));
  }

  /** Masked with zeros, which changes nothing. */
  #write(opcode: number, payload: Buffer): void {
    const isShort = payload.length < 126;
    const frame = Buffer.alloc((isShort ? 2 : 4) + maskBytes + payload.length);
    frame[0] = 0x80 | opcode;
    frame[1] = 0x80 | (isShort ? payload.length : 126);
    if (!isShort) frame.writeUInt16BE(payload.length, 2);
    frame.set(payload, frame.length - payload.length);
    this.#socket.write(frame);
  }

  #take(chunk: Buffer): void {
    this.#parts.push(chunk);
    this.#bytes += chunk.length;
    while (this.#bytes >= 2 && this.#bytes >= this.#wanted) {
      const bytes = this.#parts.length === 1 ? (this.#parts[0] as Buffer) : Buffer.concat(this.#parts);
      const [start, length] = sizesOf(bytes);
      this.#wanted = start + length;
      const isWhole = bytes.length >= this.#wanted;
      const rest = isWhole ? bytes.subarray(this.#wanted) : bytes;
      this.#parts = rest.length === 0 ? [] : [rest];
      this.#bytes = rest.length;
      if (!isWhole) return;
      this.#wanted = 0;
      this.#handle((bytes[0] as number) & 0x0f, bytes.subarray(start, start + length));
    }
  }

  #handle(opcode: number, payload: Buffer): void {
    if (opcode === opcodes.text) this.#onMessage(payload);
    else if (opcode === opcodes.ping) this.#write(opcodes.pong, payload);
  }
}

/** Sizes of the header and of the payload; larger than available if the header is incomplete. */
function sizesOf(bytes: Buffer): readonly [number, number] {
  const length = bytes[1] as number;
  if (length < 126) return [2, length];
  if (length === 126) return [4, bytes.length < 4 ? 1 : bytes.readUInt16BE(2)];
  return [10, bytes.length < 10 ? 1 : Number(bytes.readBigUInt64BE(2))];
}
