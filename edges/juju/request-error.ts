/** Request failures, as the JSON API's clients get them. */
import type { Json } from "./results.ts";

/** Codes that clients of both generations know. Clients match on codes, and in a few places on texts. */
export type ErrorCode =
  | ""
  | "not found"
  | "unauthorized access"
  | "stopped"
  | "try again"
  | "not implemented"
  | "already exists"
  | "not supported"
  | "bad request"
  | "forbidden"
  | "not valid"
  | "no credentials provided"
  | "redirection required"
  | "model not found"
  | "user not found"
  | "operation is blocked"
  | "upgrade in progress"
  | "deadline exceeded"
  | "quota limit exceeded";

/** The error reply to a request. The text reaches the client. */
export class RequestError extends Error {
  override readonly name = "RequestError";
  readonly code: ErrorCode;
  /** Sent as `error-info`; the old shape omits it. */
  readonly info: { readonly [key: string]: Json } | null;
  constructor(message: string, code: ErrorCode, info: { readonly [key: string]: Json } | null = null) {
    super(message);
    this.code = code;
    this.info = info;
  }
}

export const permissionDenied = (): RequestError => new RequestError("permission denied", "unauthorized access");
export const idNotFound = (): RequestError => new RequestError("id not found", "not found");
export const unknownWatcher = (): RequestError => new RequestError("unknown watcher id", "not found");
