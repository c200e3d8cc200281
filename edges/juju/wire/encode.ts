/**
 * Writes replies in the shape of their requests. Stock clients require (reference §1.2) that a success has no error key and
 * that a failure has a response.
 */
import type { Shape } from "../shape.ts";
import type { RequestError } from "../request-error.ts";
import { camelCased, Encoded, type Json } from "../results.ts";

/** The part of a reply before its result. */
export function encodeHead(shape: Shape, requestId: number): string {
  return shape === "V1" ? `{"request-id":${requestId},"response":` : `{"RequestId":${requestId},"Response":`;
}

export function encodeResult(shape: Shape, requestId: number, result: Json): string {
  if (result instanceof Encoded) return `${encodeHead(shape, requestId)}${result.text}}`;
  return shape === "V1"
    ? JSON.stringify({ "request-id": requestId, response: result })
    : JSON.stringify({ RequestId: requestId, Response: camelCased(result) });
}

export function encodeError(shape: Shape, requestId: number, { message, code, info }: RequestError): string {
  if (shape === "V0") {
    return JSON.stringify({
      RequestId: requestId,
      Error: message,
      ...(code === "" ? {} : { ErrorCode: code }),
      Response: {},
    });
  }
  return JSON.stringify({
    "request-id": requestId,
    error: message,
    ...(code === "" ? {} : { "error-code": code }),
    ...(info === null ? {} : { "error-info": info }),
    response: {},
  });
}
