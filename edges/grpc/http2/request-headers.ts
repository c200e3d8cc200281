/**
 * Collects the fields of a request and validates them according to RFC 9113 §8. One instance is reused for all connections.
 *
 * Q1: validated text is bounded by the header list limit: beyond it, where one byte on the wire may stand for 4 KiB from the
 *     peer's table, fields are only counted.
 */
import type { FieldReceiver } from "./hpack-decoder.ts";
import { callerHeader } from "../calling-process.ts";
import { fieldBytes, type HeaderField } from "./hpack-table.ts";
import { headerListBytesMax } from "./protocol.ts";

/** Header names are lower-case tokens; values have no control characters except tab, and no space at either end. */
const namePattern = /^[!#$%&'*+\-.^_`|~0-9a-z]+$/;
// eslint-disable-next-line no-control-regex -- matches control characters
const badValuePattern = /[\0\r\n]|^[ \t]|[ \t]$/;
const connectionSpecific = new Set(["connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade"]);

export class RequestHeaders implements FieldReceiver {
  method = "";
  path = "";
  contentType = "";
  /** `grpc-timeout`, or empty. */
  timeout = "";
  traceparent = "";
  /** `muster-caller`: the identity that a local caller states. */
  caller = "";
  /** Null if absent. */
  contentLength: number | null = null;
  /** As HPACK counts. */
  bytes = 0;
  #scheme = "";
  #authority: string | null = null;
  #hasRegular = false;
  #isMalformed = false;

  reset(): void {
    this.method = this.path = this.contentType = this.timeout = this.traceparent = this.caller = this.#scheme = "";
    this.#authority = null;
    this.contentLength = null;
    this.bytes = 0;
    this.#hasRegular = this.#isMalformed = false;
  }

  /** False if the request is malformed according to HTTP/2. */
  get isRequest(): boolean {
    return !this.#isMalformed && this.method !== "" && this.path !== "" && this.#scheme !== "";
  }

  /** False if the trailers are malformed according to HTTP/2. */
  get isTrailers(): boolean {
    return (
      !this.#isMalformed && this.method === "" && this.path === "" && this.#scheme === "" && this.#authority === null
    );
  }

  onField(field: HeaderField): void {
    this.bytes += fieldBytes(field);
    if (this.bytes > headerListBytesMax || this.#isMalformed) return;
    const { name, value } = field;
    if (name.charCodeAt(0) === 0x3a) {
      this.#onPseudo(name, value);
      return;
    }
    this.#hasRegular = true;
    switch (name) {
      case "content-type":
        this.contentType = value;
        return;
      case "grpc-timeout":
        this.timeout = value;
        return;
      case "traceparent":
        this.traceparent = value;
        return;
      case callerHeader:
        this.caller = value;
        return;
      case "te":
        if (value !== "trailers") this.#isMalformed = true;
        return;
      case "user-agent":
      case "grpc-accept-encoding":
        return;
      case "content-length":
        if (!/^\d{1,15}$/.test(value)) this.#isMalformed = true;
        this.contentLength = Number(value);
        return;
      default:
        if (!namePattern.test(name) || badValuePattern.test(value) || connectionSpecific.has(name))
          this.#isMalformed = true;
    }
  }

  #onPseudo(name: string, value: string): void {
    if (this.#hasRegular || this.#read(name) !== "") {
      this.#isMalformed = true;
      return;
    }
    if (name === ":method") this.method = value;
    else if (name === ":path") this.path = value;
    else if (name === ":scheme") this.#scheme = value;
    else this.#authority = value;
  }

  /** The current value of a pseudo-header; non-empty for names that a request cannot have. */
  #read(name: string): string {
    switch (name) {
      case ":method":
        return this.method;
      case ":path":
        return this.path;
      case ":scheme":
        return this.#scheme;
      case ":authority":
        return this.#authority === null ? "" : "twice";
      default:
        return "unknown";
    }
  }
}
