/**
 * `--at`: runs commands on a past state of the cluster. Every reading call is wrapped with the requested moment; the first one
 * fixes the version, so that all calls of a command see the same state.
 */
import type { MethodDescriptor } from "../proto/codec.ts";
import { OperatorService, ReadAtRequest, type ReadAtResponse } from "../proto/gen/messages.ts";
import type { RpcChannel } from "../runtime/ports/rpc.ts";
import { parseMoment, type Moment } from "./moment.ts";
import type { Shell } from "./shell.ts";
import { UserError } from "../lib/user-error.ts";
import { millisecondsOf } from "./values.ts";

/** Rebuilding a past state of a large cluster takes seconds, and other requests may be queued first. */
const readTimeoutMs = 60_000;

const { ReadAt, Status } = OperatorService.methods;

/** A shell whose connections return the cluster's past state, and whose clock is set to that moment. */
export function pastShell(shell: Shell, text: string): Shell {
  return showing(shell, { moment: parseMoment(text, shell.now(), "at"), shown: null });
}

interface Picture {
  readonly moment: Moment;
  /** Null before the first connection. */
  shown: { readonly version: number; readonly timeMs: number | null } | null;
}

function showing(shell: Shell, picture: Picture): Shell {
  return {
    ...shell,
    now: () => picture.shown?.timeMs ?? shell.now(),
    connect: async () => {
      const channel = await shell.connect();
      try {
        picture.shown ??= await fix(channel, picture.moment, shell);
      } catch (error) {
        channel.close();
        throw error;
      }
      return pastChannel(channel, picture.shown.version);
    },
    at: (host) => showing(shell.at(host), picture),
  };
}

async function fix(channel: RpcChannel, moment: Moment, shell: Shell): Promise<NonNullable<Picture["shown"]>> {
  const { version, time } = await read(channel, ReadAtRequest.create(moment));
  const timeMs = millisecondsOf(time);
  shell.remark(`as of version ${version}${timeMs === null ? "" : `, written at ${new Date(timeMs).toISOString()}`}`);
  return { version, timeMs };
}

function read(channel: RpcChannel, request: ReadAtRequest): Promise<ReadAtResponse> {
  return channel.unary(ReadAt, request, { timeoutMs: readTimeoutMs });
}

function pastChannel(channel: RpcChannel, version: number): RpcChannel {
  const refuse = (): never => {
    throw new UserError("--at cannot be used with a command that follows current events");
  };
  return {
    async unary<Request, Response>(
      method: MethodDescriptor<Request, Response>,
      request: Request,
      options?: { timeoutMs?: number; traceparent?: string },
    ): Promise<Response> {
      // The manager's own status is always current.
      if (method.path === Status.path) return channel.unary(method, request, options);
      const wrapped = ReadAtRequest.create({ version, method: method.path, request: method.request.encode(request) });
      return method.response.decode((await read(channel, wrapped)).response);
    },
    serverStream: refuse,
    clientStream: refuse,
    close: () => channel.close(),
    onClosed: (listener) => channel.onClosed(listener),
  };
}
