/**
 * `Muster.Control`: a method of Control with its request as JSON, answered with its response as JSON, as `muster … inspect
 * --format wire` prints objects. What the muster command reads and changes it does by these methods, so that all of it can
 * be done here, also where Juju has no word for it: networks, secrets, configs, volumes, jobs, policies, whole specs.
 *
 * MC1: a request is taken as it is written or refused: nothing that it says is passed over because it is spelt wrong.
 */
import type { MethodDescriptor } from "../../../proto/codec.ts";
import { ControlService } from "../../../proto/gen/messages.ts";
import type { CallContext } from "../../../runtime/rpc.ts";
import { isAtLeast, type Call, type FacadeSources, type Method, type Role } from "../facade.ts";
import { redacted, seesValues } from "../redaction.ts";
import { permissionDenied, RequestError } from "../request-error.ts";
import { verbatim, type Json } from "../results.ts";

/** Objects of one answer: some 5 MB of large tasks. Who has more names them by filters. */
export const objectsMax = 2_000;

type AnyMethod = MethodDescriptor<object, object>;

/** What changes who manages, or the cluster itself; of a cluster also the look, which shows the tokens that nodes join with. */
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
      throw new RequestError(`more than ${objectsMax} objects: name fewer by filters`, "quota limit exceeded");
  }
  const shown = method.response.toJson(response) as Json;
  return verbatim(seesValues(session) ? shown : redacted(shown));
}

/** MC1: what has been read is written again, and has to be the same. */
function readMessage({ request }: AnyMethod, given: object): object {
  let message: object;
  try {
    message = request.fromJson(given);
  } catch (error) {
    throw new RequestError(error instanceof Error ? error.message : String(error), "bad request");
  }
  // On the wire a number loses what its field has no room for: a sign, a fraction.
  const sent = request.decode(request.encode(message));
  const wrong =
    difference(given, request.toJson(message, true), "request") ?? lost(given, request.toJson(sent), "request");
  if (wrong !== null) throw new RequestError(`${wrong} is not known, or of another type`, "bad request");
  return sent;
}

type Fields = Readonly<Record<string, unknown>>;

/** Where the two part; null where they do not. */
function difference(given: unknown, read: unknown, path: string): string | null {
  if (given === null || given === undefined) return null;
  // Enums are read by number, too, and written by name.
  if (typeof given === "number" && typeof read === "string") return read === String(given) ? path : null;
  if (typeof given !== typeof read || read === null || Array.isArray(given) !== Array.isArray(read)) return path;
  if (typeof given !== "object") return given === read ? null : path;
  return firstOf(given, (key, value) => difference(value, (read as Fields)[key], `${path}.${key}`));
}

/** Where a number is another one; defaults are not sent, and read as absent. */
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
