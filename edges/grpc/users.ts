/**
 * Checks between a user's call and its handler, in addition to the row of `roles.ts`. For all other callers handlers run
 * directly.
 *
 * US1: if the request decides what a call does, it also decides the required role.
 * US2: a user only gets messages as the user's role may see them (`redaction.ts`).
 * US3: a user who changes their own account gets the answer, although the change ends the connection: a successful change never
 *      reports an error.
 */
import type { MethodDescriptor } from "../../proto/codec.ts";
import {
  ControlRolloutRequest_Action,
  ControlService,
  OperatorService,
  ReadAtResponse,
  TaskAccessService,
  UsersService,
  type ControlRolloutRequest,
  type ReadAtRequest,
  type TaskCallRequest,
} from "../../proto/gen/messages.ts";
import { RpcError, Status, type Peer } from "../../runtime/ports/rpc.ts";
import { isAtLeast, type Role } from "../../runtime/user-roles.ts";
import { shownTo } from "./redaction.ts";
import { accessByPath, isRole, roleTooLow } from "./roles.ts";
import type { ServedMethod } from "./server-call.ts";

type AnyMethod = MethodDescriptor<unknown, unknown>;

const { ControlRollout, ReadAt } = OperatorService.methods;

/** Methods that may be asked of the past, by path. */
const pastMethods: ReadonlyMap<string, AnyMethod> = new Map(
  Object.values({ ...ControlService.methods, ...OperatorService.methods } as unknown as Readonly<
    Record<string, AnyMethod>
  >).map((method) => [method.path, method]),
);

/** US1: by path, for methods where the row is not enough. */
const needs: ReadonlyMap<string, (request: unknown) => Role> = new Map([
  [
    ControlRollout.path,
    (request) =>
      (request as ControlRolloutRequest).action === ControlRolloutRequest_Action.LOOK ? "read-only" : "operator",
  ],
  [
    ReadAt.path,
    (request) => {
      const { method } = request as ReadAtRequest;
      if (method === "") return "read-only";
      const access = accessByPath.get(method);
      return access !== undefined && isRole(access) ? access : "admin";
    },
  ],
  [
    TaskAccessService.methods.Call.path,
    // Any future kind counts as a command.
    (request) => {
      const { attach, exec, execAs, signal, stats } = request as TaskCallRequest;
      const isOnlyRead = stats !== null && [attach, exec, execAs, signal].every((each) => each === null);
      return isOnlyRead ? "read-only" : "operator";
    },
  ],
]);

/** US2. An answer about the past is encoded within the response. */
function responseFor(role: Role, path: string, request: unknown, response: unknown): unknown {
  if (path !== ReadAt.path) return shownTo(role, response);
  const { method } = request as ReadAtRequest;
  const read = response as ReadAtResponse;
  if (method === "") return read;
  const codec = pastMethods.get(method)?.response;
  if (codec === undefined) throw new RpcError(Status.PERMISSION_DENIED, `${method} is not available to users`);
  return ReadAtResponse.patch(read, { response: codec.encode(shownTo(role, codec.decode(read.response))) });
}

function demandRole({ user = "", role }: Peer, path: string, request: unknown): void {
  const needed = needs.get(path)?.(request) ?? null;
  if (role === undefined || needed === null || isAtLeast(role, needed)) return;
  throw new RpcError(Status.PERMISSION_DENIED, roleTooLow(user.slice("user-".length), role, needed));
}

/** US3: methods that may change their caller, by path; their requests name a user. */
const changing: ReadonlySet<string> = new Set(
  [
    UsersService.methods.SetUserPassword,
    UsersService.methods.ResetUser,
    UsersService.methods.GrantUser,
    UsersService.methods.DisableUser,
    UsersService.methods.RemoveUser,
  ].map(({ path }) => path),
);

/** US3: whether a request of that method changes the calling user; null if none does. */
export function changesCaller(path: string): NonNullable<ServedMethod["changesCaller"]> | null {
  if (!changing.has(path)) return null;
  return (request, { user }) => user === `user-${(request as { readonly name: string }).name}`;
}

/** The handler of a method that users may call. */
export function forUsers(method: AnyMethod, handler: ServedMethod["handler"]): ServedMethod["handler"] {
  const { path } = method;
  switch (handler.kind) {
    case "unary":
      return {
        kind: "unary",
        run(request, call) {
          const { role } = call.peer;
          if (role === undefined) return handler.run(request, call);
          demandRole(call.peer, path, request);
          const response = handler.run(request, call);
          return response instanceof Promise
            ? response.then((each: unknown) => responseFor(role, path, request, each))
            : responseFor(role, path, request, response);
        },
      };
    case "server-stream":
      return {
        kind: "server-stream",
        run(request, sink, call) {
          const { role } = call.peer;
          if (role === undefined) return handler.run(request, sink, call);
          demandRole(call.peer, path, request);
          handler.run(
            request,
            {
              write: (message) => sink.write(responseFor(role, path, request, message)),
              end: (error, queued) => sink.end(error, queued),
              bufferedBytes: () => sink.bufferedBytes(),
            },
            call,
          );
        },
      };
    // There is none that users may call, and an entry in a table alone must not add one.
    case "client-stream":
    case "duplex-stream":
      throw new Error(`US2: ${path} streams requests and cannot be served to users`);
  }
}
