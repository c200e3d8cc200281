/** Admin, the only type that is available before login: reads logins and writes their results (reference §2). */
import type { Identity } from "./facade.ts";
import type { Shape } from "./shape.ts";
import { Params } from "./params.ts";
import { RequestError } from "./request-error.ts";
import { verbatim, type Json } from "./results.ts";
import { controllerUuid, modelAccess, modelUuid, serverVersion, silentMajor } from "./model.ts";
import { protocolVersionMax } from "./dispatch.ts";
import { identifiersOf } from "./tickets.ts";
import type { Request } from "./wire/decode.ts";

interface Credentials {
  readonly tag: string;
  readonly password: string;
  readonly clientMajor: number;
  /** Identifiers of the macaroons in the request. */
  readonly tickets: readonly string[];
  /** The client can log in over HTTP and return with a macaroon. */
  readonly canDischarge: boolean;
}

export type AdminRequest =
  | { readonly kind: "login"; readonly credentials: Credentials; readonly version: number }
  | { readonly kind: "version"; readonly version: number }
  | { readonly kind: "redirectInfo" };

/** Facade versions with a Login request. */
const versions: { readonly [Each in Shape]: readonly number[] } = { V0: [0, 1, 2], V1: [3] };
const redirectInfoVersions: readonly number[] = [...versions.V0, ...versions.V1];

const isMajor = /^(\d{1,3})\./;

/** The major version that the client reports in the login or in the handshake. */
function majorOf(clientVersion: string): number {
  return Number(isMajor.exec(clientVersion)?.[1] ?? silentMajor);
}

/** Throws RequestError. `clientVersion`: from the handshake. */
export function readAdmin(request: Request, clientVersion: string): AdminRequest {
  const { shape, id } = request;
  const version = request.version ?? 0;
  const params = Params.of(request.params);
  if (id !== "") throw new RequestError("id not found", "not found");
  switch (request.request) {
    case "Login": {
      if (!versions[shape].includes(version)) {
        throw shape === "V1" && version < 3
          ? new RequestError("this version of Juju does not support login from old clients", "not supported")
          : new RequestError(`unknown version (${version}) of interface "Admin"`, "not implemented");
      }
      return {
        kind: "login",
        version,
        credentials: {
          tag: params.text("auth-tag", "tag", "entity-name"),
          password: params.text("credentials", "password"),
          tickets: identifiersOf(params.raw("macaroons")),
          canDischarge: (params.integer("bakery-version") ?? 0) > 0,
          clientMajor: majorOf(params.text("client-version") || clientVersion),
        },
      };
    }
    case "Version": {
      const wanted = params.integer("version");
      if (wanted === null || wanted < 0) throw new RequestError("the version is not a whole number", "bad request");
      return { kind: "version", version: Math.min(wanted, protocolVersionMax) };
    }
    case "RedirectInfo":
      if (redirectInfoVersions.includes(version)) return { kind: "redirectInfo" };
      throw new RequestError(`unknown version (${version}) of interface "Admin"`, "not implemented");
    default:
      throw new RequestError(
        `no such request - method Admin(${version}).${request.request} is not implemented`,
        "not implemented",
      );
  }
}

/** An address of a manager, for clients. */
export interface Server {
  readonly host: string;
  readonly port: number;
}

function serverList(servers: readonly Server[]): readonly Record<string, string | number>[][] {
  return servers.map(({ host, port }) => [
    {
      value: host,
      type: host.includes(":") ? "ipv6" : /^[\d.]+$/.test(host) ? "ipv4" : "hostname",
      scope: "public",
      port,
    },
  ]);
}

interface LoggedIn {
  readonly tag: string;
  readonly identity: Identity;
  /** Previous login of the user, in milliseconds since the epoch; null for agents and for users without one. */
  readonly lastLoginMs: number | null;
  readonly clusterId: string;
  readonly scope: "controller" | "model";
  readonly clientMajor: number;
  readonly servers: readonly Server[];
  readonly facades: readonly { readonly name: string; readonly versions: readonly number[] }[];
}

const lastConnection = ({ lastLoginMs }: LoggedIn): string | null =>
  lastLoginMs === null ? null : new Date(lastLoginMs).toISOString();

function userInfo(login: LoggedIn): Record<string, Json> {
  const { tag, identity } = login;
  const last = lastConnection(login);
  return {
    ...(last === null ? {} : { "last-connection": last }),
    "display-name": identity.kind === "user" ? identity.name : "",
    identity: tag,
    ...(identity.kind === "user"
      ? {
          "controller-access": identity.role === "admin" ? "superuser" : "login",
          "model-access": modelAccess[identity.role],
        }
      : {}),
  };
}

/** The result of a Login of that version. Keys that the encoder converts to the request's shape are in kebab-case. */
export function loginResult(version: number, login: LoggedIn): Json {
  const { clusterId, facades, scope } = login;
  const servers = serverList(login.servers);
  const environment = `environment-${modelUuid(clusterId)}`;
  const [model, controller] = [`model-${modelUuid(clusterId)}`, `controller-${controllerUuid(clusterId)}`];
  switch (version) {
    case 0:
      return {
        servers: servers.map((each) => each.map((server) => ({ ...server, "network-name": "" }))),
        "environ-tag": environment,
        "last-connection": lastConnection(login),
        facades: [...facades],
      };
    case 1:
    case 2:
      // As 1.2x servers answer: kebab-case in an envelope of the old shape, except for the list of facades.
      return verbatim({
        servers,
        "environ-tag": environment,
        "server-tag": environment,
        "user-info": userInfo(login),
        facades: facades.map(({ name, versions }) => ({ Name: name, Versions: versions })),
        "server-version": serverVersion(1),
      });
    default:
      return {
        servers,
        ...(scope === "model" ? { "model-tag": model } : {}),
        "controller-tag": controller,
        "user-info": userInfo(login),
        facades: [...facades],
        "server-version": serverVersion(login.clientMajor),
      };
  }
}

/**
 * The error reply to a login when another server serves the API. Most clients check the code and `error-info`; stock
 * JavaScript clients match this exact text.
 */
export function redirection(servers: readonly Server[], rootPem: string, clusterId: string): RequestError {
  return new RequestError("redirection required", "redirection required", {
    servers: serverList(servers),
    "ca-cert": rootPem,
    "controller-tag": `controller-${controllerUuid(clusterId)}`,
    "controller-alias": "",
  });
}

export function redirectInfo(servers: readonly Server[], rootPem: string): Json {
  return { servers: serverList(servers), "ca-cert": rootPem };
}
