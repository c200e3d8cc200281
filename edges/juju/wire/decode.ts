/**
 * Reads client messages. Both generations may share a connection, so the keys of each message determine its shape (reference
 * §1.1): `request-id` with a number above 0 is the newer one, otherwise `RequestId` the older one, whose ids start at 0. Keys
 * are case-insensitive.
 *
 * `broken`: a message without a usable id, which cannot be answered; the connection ends. `malformed`: a message that has an id
 * but cannot be understood.
 */
import type { Shape } from "../shape.ts";
import { depthMax } from "./limits.ts";

export interface Request {
  readonly shape: Shape;
  readonly requestId: number;
  readonly type: string;
  /** Null if absent. */
  readonly version: number | null;
  readonly id: string;
  readonly request: string;
  /** As received. */
  readonly params: unknown;
}

type Decoded =
  | { readonly kind: "request"; readonly request: Request }
  | { readonly kind: "malformed"; readonly shape: Shape; readonly requestId: number; readonly reason: string }
  | { readonly kind: "broken"; readonly reason: string };

/** Whether arrays and objects are nested deeper than `depthMax`. Scans the text before it is parsed. */
export function isTooDeep(text: string): boolean {
  let depth = 0;
  for (let at = 0; at < text.length; at += 1) {
    switch (text.charCodeAt(at)) {
      case 0x22: // A string: skip to its end.
        for (at += 1; at < text.length && text.charCodeAt(at) !== 0x22; at += 1) {
          if (text.charCodeAt(at) === 0x5c) at += 1;
        }
        break;
      case 0x5b:
      case 0x7b:
        depth += 1;
        if (depth > depthMax) return true;
        break;
      case 0x5d:
      case 0x7d:
        depth -= 1;
        break;
    }
  }
  return false;
}

const broken = (reason: string): Decoded => ({ kind: "broken", reason });

function isId(value: unknown, least: number): value is number {
  return Number.isSafeInteger(value) && (value as number) >= least;
}

export function decode(text: string): Decoded {
  if (isTooDeep(text)) return broken(`JSON is nested deeper than ${depthMax}`);
  let parsed: unknown;
  try {
    parsed = JSON.parse(text);
  } catch {
    return broken("not JSON");
  }
  if (typeof parsed !== "object" || parsed === null || Array.isArray(parsed)) return broken("not a JSON object");
  let newId: unknown;
  let oldId: unknown;
  let type: unknown;
  let version: unknown;
  let id: unknown;
  let name: unknown;
  let params: unknown;
  for (const [key, value] of Object.entries(parsed)) {
    switch (key.toLowerCase()) {
      case "request-id":
        newId = value;
        break;
      case "requestid":
        oldId = value;
        break;
      case "type":
        type = value;
        break;
      case "version":
        version = value;
        break;
      case "id":
        id = value;
        break;
      case "request":
        name = value;
        break;
      case "params":
        params = value;
        break;
    }
  }
  // As in real servers, 0 under the new key counts as no id.
  const isNew = newId !== undefined && newId !== null && newId !== 0;
  const shape: Shape = isNew ? "V1" : "V0";
  const requestId = isNew ? newId : oldId;
  if (!isId(requestId, isNew ? 1 : 0)) return broken("a request id must be a whole number below 2^53");
  const malformed = (reason: string): Decoded => ({ kind: "malformed", shape, requestId, reason });
  type ??= "";
  id ??= "";
  name ??= "";
  version ??= null;
  if (typeof type !== "string") return malformed("the type is not a string");
  if (typeof id !== "string") return malformed("the id is not a string");
  if (typeof name !== "string") return malformed("the request is not a string");
  if (version !== null && !isId(version, 0)) return malformed("the version is not a whole number");
  if (params !== undefined && (typeof params !== "object" || Array.isArray(params)))
    return malformed("the params are not an object");
  return {
    kind: "request",
    request: { shape, requestId, type, version: version as number | null, id, request: name, params },
  };
}
