/** gRPC's status and deadline in HTTP/2 headers. */
import { ErrorCode } from "./http2/protocol.ts";
import { Status } from "../../runtime/ports/rpc.ts";

/** Percent-encodes non-printable and non-ASCII bytes and the percent sign (gRPC over HTTP/2, "Status-Message"). */
export function encodeStatusMessage(text: string): string {
  if (/^[\x20-\x24\x26-\x7e]*$/.test(text)) return text;
  let encoded = "";
  for (const byte of Buffer.from(text, "utf8")) {
    const isPlain = byte >= 0x20 && byte <= 0x7e && byte !== 0x25;
    encoded += isPlain ? String.fromCharCode(byte) : `%${byte.toString(16).toUpperCase().padStart(2, "0")}`;
  }
  return encoded;
}

/** The text of a `grpc-message`; invalid escapes are kept. */
export function decodeStatusMessage(encoded: string): string {
  if (!encoded.includes("%")) return encoded;
  const bytes: number[] = [];
  for (let at = 0; at < encoded.length; at += 1) {
    const escape = /^%[0-9A-Fa-f]{2}/.exec(encoded.slice(at, at + 3));
    if (escape === null) {
      bytes.push(...Buffer.from(encoded[at] as string, "utf8"));
    } else {
      bytes.push(Number.parseInt(escape[0].slice(1), 16));
      at += 2;
    }
  }
  return Buffer.from(bytes).toString("utf8");
}

const unitMs: Readonly<Record<string, number>> = { H: 3_600_000, M: 60_000, S: 1_000, m: 1, u: 1e-3, n: 1e-6 };

/** Milliseconds of a `grpc-timeout`, rounded up; null if it is malformed. */
export function parseTimeout(text: string): number | null {
  const unit = unitMs[text.slice(-1)];
  const digits = text.slice(0, -1);
  if (unit === undefined || !/^\d{1,8}$/.test(digits)) return null;
  return Math.ceil(Number(digits) * unit);
}

/** A `grpc-timeout`, which has at most 8 digits: milliseconds, or seconds if those do not fit. */
export function formatTimeout(ms: number): string {
  const whole = Math.max(1, Math.ceil(ms));
  return whole < 1e8 ? `${whole}m` : `${Math.min(99_999_999, Math.ceil(whole / 1_000))}S`;
}

/** The status of a numeric text; UNKNOWN for anything else. */
export function parseStatus(text: string): Status {
  const code = Number(text);
  return Number.isInteger(code) && code >= 0 && code <= 16 && text !== "" ? (code as Status) : Status.UNKNOWN;
}

/** The status for a stream reset ("HTTP2 Transport Mapping" of gRPC over HTTP/2). */
export function statusOfReset(http2Code: number): Status {
  switch (http2Code) {
    case ErrorCode.CANCEL:
      return Status.CANCELLED;
    case ErrorCode.REFUSED_STREAM:
      return Status.UNAVAILABLE;
    case ErrorCode.ENHANCE_YOUR_CALM:
      return Status.RESOURCE_EXHAUSTED;
    case ErrorCode.INADEQUATE_SECURITY:
      return Status.PERMISSION_DENIED;
    default:
      return Status.INTERNAL;
  }
}

/** The status for a non-gRPC answer ("HTTP to gRPC status code mapping"). */
export function statusOfHttp(httpStatus: number): Status {
  switch (httpStatus) {
    case 400:
      return Status.INTERNAL;
    case 401:
      return Status.UNAUTHENTICATED;
    case 403:
      return Status.PERMISSION_DENIED;
    case 404:
      return Status.UNIMPLEMENTED;
    case 429:
    case 502:
    case 503:
    case 504:
      return Status.UNAVAILABLE;
    default:
      return Status.UNKNOWN;
  }
}
