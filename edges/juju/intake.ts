/**
 * Limits what a client of the JSON API may send: counts its bytes before the WebSocket's reader stores them, and the time that
 * its messages take.
 *
 * I1: before login, a client holds at most `loginMessageBytesMax`, and all such clients together at most their shared budget.
 * I2: a message that is not completed in time ends its connection.
 */
import type { Duplex } from "node:stream";
import type { WebSocket } from "ws";
import type { Admission } from "../grpc/admission/admission.ts";
import type { ByteHolder } from "../grpc/admission/byte-budget.ts";
import { strangersFactor } from "../grpc/admission/http-strangers.ts";
import { UnfinishedMessage } from "./unfinished-message.ts";
import { largeMessageBytes, loginMessageBytesMax, tooLargeCode } from "./wire/limits.ts";

/** A frame's header with its mask, rounded up. */
const headerBytesMax = 14;
/** Time for the client to read the close frame, in milliseconds. */
const lingerMs = 1_000;

export class Intake implements ByteHolder {
  readonly #websocket: WebSocket;
  readonly #socket: Duplex;
  readonly #admission: Admission;
  readonly #address: string;
  readonly #unfinished: UnfinishedMessage;
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
    this.#unfinished = new UnfinishedMessage(websocket, socket, () => this.#onBytes());
    socket.once("close", () => this.#close());
  }

  /** Runs `take` on a complete message and counts its time. */
  onMessage(bytes: number, take: () => void): void {
    this.#unfinished.completed();
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

  /** I2. Whether, since the previous call, a message was in progress and none was completed. */
  isStalled(): boolean {
    const isStalled = this.#unfinished.bytes > 0 && this.#checked === this.#messages;
    this.#checked = this.#unfinished.bytes > 0 ? this.#messages : -1;
    return isStalled;
  }

  /** Pauses reading, for the time share. */
  pause(): void {
    this.#waitsForTime = true;
    this.#pauseOrResume();
  }

  resume(): void {
    this.#waitsForTime = false;
    this.#pauseOrResume();
  }

  /** The connection can or cannot accept more requests. */
  setRoom(hasRoom: boolean): void {
    this.#waitsForRoom = !hasRoom;
    this.#pauseOrResume();
  }

  relieve(): void {
    this.#admission.refusals.count("json", this.#isKnown ? "known-bytes" : "anonymous-bytes", this.#address);
    this.#socket.destroy();
  }

  /** Ends the connection, because a message was not completed in time. */
  expire(): void {
    this.#admission.refusals.count("json", "unfinished-request", this.#address);
    this.#socket.destroy();
  }

  #pauseOrResume(): void {
    if (this.#waitsForTime || this.#waitsForRoom || this.#isOver) this.#websocket.pause();
    else this.#websocket.resume();
  }

  #onBytes(): void {
    if (!this.#isKnown && !this.#isOver && this.#unfinished.bytes > loginMessageBytesMax + headerBytesMax) {
      this.#isOver = true;
      this.#admission.refusals.count("json", "login-bytes", this.#address);
      this.#websocket.close(tooLargeCode, "a message before login is too large");
      // The client reads the close frame; the server reads nothing more.
      this.#pauseOrResume();
      setTimeout(() => this.#socket.destroy(), lingerMs).unref();
    }
    this.#account();
  }

  #account(): void {
    const { anonymousBytes, knownBytes } = this.#admission;
    if (this.#socket.destroyed) return;
    if (this.#isKnown) knownBytes.set(this, this.#unfinished.bytes);
    else anonymousBytes.set(this, strangersFactor * this.#unfinished.bytes);
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
