/**
 * What a client of the JSON API may send at a time: counts its bytes before the WebSocket's reader keeps them, and the time that
 * its messages take.
 *
 * I1: before login a client holds no more than `loginMessageBytesMax`, and all together no more than their budget.
 * I2: a message that is not completed ends its connection in time.
 */
import type { Duplex } from "node:stream";
import type { WebSocket } from "ws";
import type { Admission } from "../grpc/admission/admission.ts";
import type { ByteHolder } from "../grpc/admission/byte-budget.ts";
import { largeMessageBytes, loginMessageBytesMax, tooLargeCode } from "./wire/limits.ts";

/** A frame's header, with its mask, and some more. */
const headerBytesMax = 14;
/** Of a control frame's, which is short. */
const controlHeaderBytes = 6;
/** Before login each byte counts for so many: a message may come in fragments of a byte, each of which costs its header and some
 *  150 bytes of ours. */
const strangersFactor = 8;
/** Milliseconds to read the goodbye. */
const lingerMs = 1_000;

export class Intake implements ByteHolder {
  readonly #websocket: WebSocket;
  readonly #socket: Duplex;
  readonly #admission: Admission;
  readonly #address: string;
  /** What came since the last whole message. */
  #unfinished = 0;
  #messages = 0;
  #checked = -1;
  #isKnown = false;
  #isOver = false;
  #waitsForTime = false;
  #waitsForRoom = false;

  constructor(websocket: WebSocket, socket: Duplex, admission: Admission, address: string) {
    this.#websocket = websocket;
    this.#socket = socket;
    this.#admission = admission;
    this.#address = address;
    // Before the library's own, so that what it hands out is counted by then.
    socket.prependListener("data", (chunk: Buffer) => this.#onBytes(chunk.length));
    websocket.on("ping", (data) => this.#onControl(data.length));
    websocket.on("pong", (data) => this.#onControl(data.length));
    socket.once("close", () => this.#close());
  }

  /** Runs `take` on a whole message, on whose time it is. */
  onMessage(bytes: number, take: () => void): void {
    this.#unfinished = 0;
    this.#messages += 1;
    this.#account();
    if (this.#isOver) return;
    const { anonymousTime, largeMessageTime } = this.#admission;
    if (!this.#isKnown) anonymousTime.run(this, take);
    else if (bytes > largeMessageBytes) largeMessageTime.run(this, take);
    else take();
  }

  /** The client has logged in. */
  becomeKnown(): void {
    const { anonymousBytes, anonymousTime } = this.#admission;
    this.#isKnown = true;
    anonymousBytes.set(this, 0);
    anonymousTime.release(this);
    this.#account();
  }

  /** I2. Whether since the last time that this was asked a message was under way and none was completed. */
  isStalled(): boolean {
    const isStalled = this.#unfinished > 0 && this.#checked === this.#messages;
    this.#checked = this.#unfinished > 0 ? this.#messages : -1;
    return isStalled;
  }

  /** For the time share: not to be read for now. */
  pause(): void {
    this.#waitsForTime = true;
    this.#look();
  }

  resume(): void {
    this.#waitsForTime = false;
    this.#look();
  }

  /** The connection has no room for more requests, or has it again. */
  setRoom(hasRoom: boolean): void {
    this.#waitsForRoom = !hasRoom;
    this.#look();
  }

  relieve(): void {
    this.#admission.refusals.count("json", this.#isKnown ? "known-bytes" : "anonymous-bytes", this.#address);
    this.#socket.destroy();
  }

  /** Ends it, because a message is not completed. */
  expire(): void {
    this.#admission.refusals.count("json", "unfinished-request", this.#address);
    this.#socket.destroy();
  }

  #look(): void {
    if (this.#waitsForTime || this.#waitsForRoom || this.#isOver) this.#websocket.pause();
    else this.#websocket.resume();
  }

  #onControl(payloadBytes: number): void {
    this.#unfinished = Math.max(0, this.#unfinished - payloadBytes - controlHeaderBytes);
    this.#account();
  }

  #onBytes(bytes: number): void {
    this.#unfinished += bytes;
    if (!this.#isKnown && !this.#isOver && this.#unfinished > loginMessageBytesMax + headerBytesMax) {
      this.#isOver = true;
      this.#admission.refusals.count("json", "login-bytes", this.#address);
      this.#websocket.close(tooLargeCode, "a message before login is too large");
      // It reads the goodbye, and we nothing more.
      this.#look();
      setTimeout(() => this.#socket.destroy(), lingerMs).unref();
    }
    this.#account();
  }

  #account(): void {
    const { anonymousBytes, knownBytes } = this.#admission;
    if (this.#socket.destroyed) return;
    if (this.#isKnown) knownBytes.set(this, this.#unfinished);
    else anonymousBytes.set(this, strangersFactor * this.#unfinished);
  }

  #close(): void {
    const { anonymousBytes, anonymousTime, knownBytes, largeMessageTime } = this.#admission;
    this.#isOver = true;
    anonymousBytes.set(this, 0);
    knownBytes.set(this, 0);
    anonymousTime.release(this);
    largeMessageTime.release(this);
  }
}
