/**
 * Copies a plugin's standard error to our log. The plugin writes to a file rather than to a pipe of ours: a Go plugin whose
 * host has died is killed by the first line that it logs to a broken pipe, and then there is nothing left to reattach to.
 *
 * G1: memory is bounded, whatever the plugin writes: one line's first bytes, and its last words.
 * G2: the file is bounded while it is being read: it is truncated when it is large and completely read.
 * G3: a plugin that floods its log costs a bounded share of the CPU; skipped lines are counted and reported.
 */
import { closeSync, constants, fstatSync, ftruncateSync, openSync, readSync } from "node:fs";
import type { Logger } from "../../../runtime/ports/index.ts";
import { LastWords } from "./last-words.ts";
import { parseLogLine, type LogLevel } from "./log-line.ts";

/** Polling interval. Log lines are not urgent, and polling twenty plugins costs almost nothing. */
const pollMs = 200;
/** go-plugin's line buffer; the rest of a longer line becomes another line. */
const lineBytesMax = 64 * 1024;
/** G3: bytes read per poll, which makes 5 MiB/s. */
const pollBytesMax = 1024 * 1024;
const pollLinesMax = 500;
/** G2 */
const fileBytesMax = 1024 * 1024;
/** G3: unread bytes above which all but the newest are skipped. */
const backlogBytesMax = 16 * 1024 * 1024;

const chunk = Buffer.allocUnsafeSlow(64 * 1024);

export class LogTail {
  readonly #plugin: string;
  readonly #log: Logger;
  readonly #fd: number;
  readonly #timer: NodeJS.Timeout;
  #at: number;
  #rest: Buffer = Buffer.alloc(0);
  #isPanicking = false;
  #linesLeft = 0;
  #dropped = 0;
  #isClosed = false;
  readonly #last = new LastWords();

  /** Follows the file from its end (when reattaching) or from its beginning. */
  constructor(plugin: string, log: Logger, path: string, from: "beginning" | "end") {
    this.#plugin = plugin;
    this.#log = log;
    this.#fd = openSync(path, constants.O_RDWR | constants.O_CREAT, 0o600);
    this.#at = from === "end" ? fstatSync(this.#fd).size : 0;
    this.#timer = setInterval(() => this.#poll(), pollMs);
    this.#timer.unref();
  }

  /** The last lines that the plugin wrote before it died, the error first. */
  lastWords(): string {
    return this.#last.text();
  }

  /** Reads what is left and closes the file. */
  close(): void {
    if (this.#isClosed) return;
    clearInterval(this.#timer);
    this.#poll();
    if (this.#rest.length > 0) this.#line(this.#rest);
    this.#isClosed = true;
    closeSync(this.#fd);
  }

  #poll(): void {
    if (this.#isClosed) return;
    this.#linesLeft = pollLinesMax;
    const { size } = fstatSync(this.#fd);
    if (size - this.#at > backlogBytesMax) {
      this.#log.warn(
        { plugin: this.#plugin, bytes: size - this.#at },
        "skipped part of a plugin's log: it writes too fast",
      );
      this.#at = size;
      this.#rest = Buffer.alloc(0);
    }
    let taken = 0;
    for (let read; taken < pollBytesMax; taken += read) {
      read = readSync(this.#fd, chunk, 0, chunk.length, this.#at);
      if (read === 0) break;
      this.#at += read;
      this.#cut(chunk.subarray(0, read));
    }
    if (this.#dropped > 0) {
      this.#log.warn({ plugin: this.#plugin, lines: this.#dropped }, "skipped lines of a plugin's log");
      this.#dropped = 0;
    }
    // The plugin appends, so its next line starts the truncated file. Lines written since the last read are lost (G2).
    if (this.#at > fileBytesMax && taken < pollBytesMax) {
      ftruncateSync(this.#fd, 0);
      this.#at = 0;
    }
  }

  #cut(bytes: Buffer): void {
    let from = 0;
    for (let end = bytes.indexOf(10); end !== -1; end = bytes.indexOf(10, from)) {
      this.#line(Buffer.concat([this.#rest, bytes.subarray(from, end)]));
      this.#rest = Buffer.alloc(0);
      from = end + 1;
    }
    this.#rest = Buffer.concat([this.#rest, bytes.subarray(from)]);
    while (this.#rest.length > lineBytesMax) {
      this.#line(this.#rest.subarray(0, lineBytesMax));
      this.#rest = Buffer.from(this.#rest.subarray(lineBytesMax));
    }
  }

  #line(bytes: Buffer): void {
    const text = bytes.toString("utf8").trimEnd();
    if (text === "") return;
    if (this.#linesLeft <= 0) {
      this.#dropped += 1;
      return;
    }
    this.#linesLeft -= 1;
    this.#last.push(text);
    const line = parseLogLine(text);
    this.#isPanicking ||= line.isPanic;
    const level: LogLevel = this.#isPanicking ? "error" : line.level;
    this.#log[level]({ ...line.fields, plugin: this.#plugin }, line.message);
  }
}
