/**
 * `Muster.Control`: calls a method of Control with a JSON request and returns its response as JSON, in the format of `muster …
 * inspect --format wire`. The muster command uses the same methods, so this covers everything that Juju has no request for:
 * networks, secrets, configs, volumes, jobs, policies, whole specs.
 *
 * MC1: a request is applied exactly as written or refused: a misspelt field is never ignored.
 */
import type { MethodDescriptor } from "../../../proto/codec.ts";
import { ControlService } from "../../../proto/gen/messages.ts";
import type { CallContext } from "../../../runtime/ports/rpc.ts";
import { type Call, type FacadeSources, type Method, type Role } from "../facade.ts";
import { isAtLeast } from "../../../runtime/user-roles.ts";
import { redacted, seesValues } from "../redaction.ts";
import { permissionDenied, RequestError } from "../request-error.ts";
import { verbatim, type Json } from "../results.ts";

/** Maximum number of objects in a reply, about 5 MB of large tasks; clients with more use filters. */
export const objectsMax = 2_000;

type AnyMethod = MethodDescriptor<object, object>;

/** Methods that change managers or the cluster; and those that return the cluster, whose join tokens are secret. */
const forAdmins = /^(?:UpdateNode|RemoveNode|GetCluster|ListClusters|UpdateCluster)$/;

function neededFor(name: string): Role {
  if (forAdmins.test(name)) return "admin";
  return /^(?:Get|List)/.test(name) ? "read-only" : "operator";
}

export function controlMethod(sources: FacadeSources): Method {
  return { needs: "read-only", run: (call) => ask(sources, call) };
}

async function ask({ control }: FacadeSources, call: Call): Promise<Json> {
  const { params, rpc, session } = call;
  const name = params.text("method");
  const methods = ControlService.methods as Readonly<Record<string, unknown>>;
  if (!Object.hasOwn(methods, name))
    throw new RequestError(`Control has no method ${JSON.stringify(name)}`, "not implemented");
  if (session.identity.kind !== "user" || !isAtLeast(session.identity.role, neededFor(name))) throw permissionDenied();
  const method = methods[name] as AnyMethod;
  const handler = control[name as keyof typeof control] as (request: object, rpc: CallContext) => Promise<object>;
  const request = readMessage(method, Object.fromEntries(params.map("request")));
  const response = await handler(request, { ...rpc, method: `Muster/Control ${name}` });
  for (const value of Object.values(response)) {
    if (Array.isArray(value) && value.length > objectsMax)
      throw new RequestError(`more than ${objectsMax} objects: select fewer with filters`, "quota limit exceeded");
  }
  const shown = method.response.toJson(response) as Json;
  return verbatim(seesValues(session) ? shown : redacted(shown));
}

/** MC1: the parsed message, written again, must equal the request. */
function readMessage({ request }: AnyMethod, given: object): object {
  let message: object;
  try {
    message = request.fromJson(given);
  } catch (error) {
    throw new RequestError(error instanceof Error ? error.message : String(error), "bad request");
  }
  // Encoding drops what a number's field cannot hold: a sign, a fraction.
  const sent = request.decode(request.encode(message));
  const wrong =
    difference(given, request.toJson(message, true), "request") ?? lost(given, request.toJson(sent), "request");
  if (wrong !== null) throw new RequestError(`${wrong} is unknown or has the wrong type`, "bad request");
  return sent;
}

type Fields = Readonly<Record<string, unknown>>;

/** Path of the first difference; null if there is none. */
function difference(given: unknown, read: unknown, path: string): string | null {
  if (given === null || given === undefined) return null;
  // Enums may be given by number, and are written by name.
  if (typeof given === "number" && typeof read === "string") return read === String(given) ? path : null;
  if (typeof given !== typeof read || read === null || Array.isArray(given) !== Array.isArray(read)) return path;
  if (typeof given !== "object") return given === read ? null : path;
  return firstOf(given, (key, value) => difference(value, (read as Fields)[key], `${path}.${key}`));
}

/** Path of the first number that encoding changes; defaults are not sent, and are absent after decoding. */
function lost(given: unknown, read: unknown, path: string): string | null {
  if (typeof given === "number") return given === (read ?? 0) || typeof read === "string" ? null : path;
  if (typeof given !== "object" || given === null) return null;
  return firstOf(given, (key, value) => lost(value, (read as Fields | undefined)?.[key], `${path}.${key}`));
}

function firstOf(given: object, look: (key: string, value: unknown) => string | null): string | null {
  for (const [key, value] of Object.entries(given)) {
    const found = look(key, value);
    if (found !== null) return found;
  }
  return null;
}
