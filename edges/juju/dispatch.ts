/**
 * Finds the method for a request and authorizes it, in the reference's order (facade.ts). Only the facades' tables define
 * permissions.
 */
import { type Call, type Facade, type Method, type Session } from "./facade.ts";
import { isAtLeast } from "../../runtime/user-roles.ts";
import { type Shape } from "./shape.ts";
import { idNotFound, permissionDenied, RequestError } from "./request-error.ts";
import type { Json } from "./results.ts";

/** Highest protocol version of `Admin.Version`: 0 is the seed's style, 1 that of numbered facades. */
export const protocolVersionMax = 1;

interface Wanted {
  readonly shape: Shape;
  readonly type: string;
  /** Null: the highest that the connection's protocol version allows. */
  readonly version: number | null;
}

export class Registry {
  readonly #byType = new Map<string, readonly Facade[]>();

  constructor(facades: readonly Facade[]) {
    for (const facade of facades) {
      this.#byType.set(facade.type, [...(this.#byType.get(facade.type) ?? []), facade]);
    }
  }

  /** Throws RequestError `not implemented`, or `not supported` in the newer shape. */
  find(wanted: Wanted, protocolVersion: number): { readonly facade: Facade; readonly version: number } {
    const { shape, type } = wanted;
    const served = (this.#byType.get(type) ?? []).filter((each) => each.shape === undefined || each.shape === shape);
    if (served.length === 0) {
      throw missing(shape, `unknown object type "${type}"`, `facade "${type}" is not supported by this controller`);
    }
    const version = wanted.version ?? (shape === "V1" ? 0 : highest(served, protocolVersion));
    const facade = served.find(({ versions }) => versions.includes(version));
    if (facade === undefined) {
      const text = `version (${version}) of facade "${type}" is not supported by this controller`;
      throw missing(shape, `unknown version (${version}) of interface "${type}"`, text);
    }
    return { facade, version };
  }

  /** The facades in a login's result, with all of their versions. */
  list(
    shape: Shape,
    { scope, identity }: Pick<Session, "scope" | "identity">,
  ): readonly { name: string; versions: number[] }[] {
    const listed: { name: string; versions: number[] }[] = [];
    for (const [name, facades] of this.#byType) {
      const versions = facades
        .filter((each) => each.isUnlisted !== true && isServed(each, shape, scope) && isFor(each, identity.kind))
        .flatMap((each) => each.versions);
      if (versions.length > 0) listed.push({ name, versions: versions.toSorted((left, right) => left - right) });
    }
    return listed.toSorted((left, right) => (left.name < right.name ? -1 : 1));
  }

  /** Every facade, for checks of the tables. */
  *all(): Iterable<Facade> {
    for (const facades of this.#byType.values()) yield* facades;
  }
}

/**
 * Error for an unknown type, version or method. Clients of 1.x retry with a lower version after `not implemented`. Go clients
 * since 2.0 report that code as "juju client not compatible with server" and advise installing another client, so the newer
 * shape uses `not supported`.
 */
function missing(shape: Shape, older: string, newer: string): RequestError {
  return shape === "V0" ? new RequestError(older, "not implemented") : new RequestError(newer, "not supported");
}

function highest(served: readonly Facade[], protocolVersion: number): number {
  const fitting = served.flatMap(({ versions }) => versions).filter((version) => version <= protocolVersion);
  return fitting.length === 0 ? 0 : Math.max(...fitting);
}

function isServed(facade: Facade, shape: Shape, scope: Session["scope"]): boolean {
  return (facade.shape ?? shape) === shape && (facade.scope ?? scope) === scope;
}

function isFor({ who }: Facade, kind: Session["identity"]["kind"]): boolean {
  return who === "everybody" || (who === "users") === (kind === "user");
}

/** Steps 2 to 5 of the order in facade.ts; throws RequestError. */
export function authorize(facade: Facade, call: Call): Method {
  const { identity, scope } = call.session;
  if (facade.scope !== undefined && facade.scope !== scope) {
    const which = scope === "controller" ? "controller" : "model";
    throw new RequestError(`facade "${call.type}" not supported for ${which} API connection`, "not supported");
  }
  if (!isFor(facade, identity.kind)) throw permissionDenied();
  const method = Object.hasOwn(facade.methods, call.request) ? facade.methods[call.request] : undefined;
  if (method === undefined || method.versions?.includes(call.version) === false) {
    const name = `${call.type}(${call.version}).${call.request}`;
    const text = `method ${name} is not supported by this controller`;
    throw missing(call.shape, `no such request - method ${name} is not implemented`, text);
  }
  if (facade.admits?.(call) === false) throw permissionDenied();
  if (facade.id === "none" && call.id !== "") throw idNotFound();
  if (facade.id === "watcher") call.session.resources.get(call.type, call.id);
  facade.lookUp?.(call);
  if (identity.kind === "user" && !isAtLeast(identity.role, method.needs)) throw permissionDenied();
  if (method.allows?.(call) === false) throw permissionDenied();
  return method;
}

/** The result; rejects with RequestError, or with whatever else went wrong inside. */
export async function run(facade: Facade, call: Call): Promise<Json> {
  const waiting = facade.ready?.() ?? null;
  if (waiting !== null) await waiting;
  return authorize(facade, call).run(call);
}
