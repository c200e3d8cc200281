/**
 * `/services/{id}/logs` and `/tasks/{id}/logs`: output in frames of 8 bytes and a line, or raw for a terminal.
 *
 * DL1: a client that does not read holds one piece here. The sender waits for it, and ends the stream after two minutes
 *      (`actors/logs/home.ts`).
 */
import {
  LogSelector,
  LogStream,
  LogSubscriptionOptions,
  SubscribeLogsMessage,
  SubscribeLogsRequest,
  Timestamp,
  type LogMessage,
  type TaskSpec,
} from "../../../proto/gen/messages.ts";
import type { CallSignal } from "../../../runtime/ports/rpc.ts";
import { LogsLines, type LogLines } from "../../../proto/log-lines.ts";
import { beginStream, type ClientStream } from "../client-stream.ts";
import { Failure } from "../failure.ts";
import { findService, findTask } from "../find.ts";
import { frameHeader, stderr, stdout, streamType } from "../frames.ts";
import { isSet, timestampOf } from "../go-text.ts";
import type { DockerRequest, Handler } from "../request.ts";
import { findContainer } from "./containers.ts";

const detailsPrefix = "com.docker.swarm";

interface Source {
  readonly selector: LogSelector;
  readonly spec: TaskSpec | null;
}

export const serviceLogs: Handler = (request) =>
  follow(request, async () => {
    const { id, spec } = await findService(request.calls, request.name);
    return { selector: LogSelector.create({ serviceIds: [id] }), spec: spec?.task ?? null };
  });

export const taskLogs: Handler = (request) =>
  follow(request, async () => {
    const { id, spec } = await findTask(request.calls, request.name);
    return { selector: LogSelector.create({ taskIds: [id] }), spec };
  });

export const containerLogs: Handler = (request) =>
  follow(request, async () => {
    const { task } = await findContainer(request, request.name);
    return { selector: LogSelector.create({ taskIds: [task.id] }), spec: task.spec };
  });

/** SwarmKit's encoding: 0 is all, -(n+1) means the last n lines. Throws Failure. */
function tailOf(text: string): number {
  if (text === "" || text === "all") return 0;
  if (!/^[+-]?\d+$/.test(text)) throw new Failure(500, 'tail value must be a positive integer or "all"');
  if (Number(text) < 0) throw new Failure(500, "negative tail values not supported");
  return -Number(text) - 1;
}

/** The streams that a query asks for. */
export function streamsOf(query: URLSearchParams): readonly LogStream[] {
  const streams: LogStream[] = [];
  if (isSet(query.get("stdout"))) streams.push(LogStream.LOG_STREAM_STDOUT);
  if (isSet(query.get("stderr"))) streams.push(LogStream.LOG_STREAM_STDERR);
  return streams;
}

async function follow(request: DockerRequest, find: () => Promise<Source>): Promise<null> {
  const { query, response, version } = request;
  const streams = streamsOf(query);
  if (streams.length === 0) throw new Failure(500, "Bad parameters: you must choose at least one stream");
  const { selector, spec } = await find();
  const tail = tailOf(query.get("tail") ?? "");
  const since = timestampOf(
    query.get("since") ?? "",
    (why) => new Failure(500, `could not parse since timestamp: ${why}`),
  );
  const isRaw = spec?.container?.tty === true;
  return streamLogs(request, () => beginStream(null, response, streamType(version, isRaw)), {
    selector,
    isRaw,
    streams,
    follow: isSet(query.get("follow")),
    tail,
    since,
  });
}

interface Wanted {
  readonly selector: LogSelector;
  readonly isRaw: boolean;
  readonly streams: readonly LogStream[];
  readonly follow: boolean;
  /** In SwarmKit's encoding. */
  readonly tail: number;
  readonly since: { readonly seconds: number; readonly nanos: number } | null;
}

/** Resolves at the end of the output, or when `signal` aborts. `begin` is called once the subscription is accepted. Rejects with RpcError before that. */
export async function streamLogs(
  { calls, query, signal }: Pick<DockerRequest, "calls" | "query"> & { readonly signal: CallSignal },
  begin: () => ClientStream,
  { follow: follows, isRaw, selector, since, streams, tail }: Wanted,
  onLines: () => void = () => undefined,
): Promise<null> {
  let out: ClientStream | null = null;
  const begun = (): ClientStream => (out ??= begin());
  const ended = Promise.withResolvers<null>();
  const write = writerOf(query, (data) => begun().write(data), isRaw);
  calls.stream(
    LogsLines.methods.SubscribeLogs,
    SubscribeLogsRequest.create({
      selector,
      options: LogSubscriptionOptions.create({
        streams,
        follow: follows,
        tail,
        since: since === null ? null : Timestamp.create(since),
      }),
    }),
    {
      write: (lines: LogLines) => {
        onLines();
        for (const message of SubscribeLogsMessage.decode(lines).messages) write(message);
      },
      end: (error) => {
        if (error !== undefined && !signal.aborted)
          write.failure(`Error grabbing logs: rpc error: code = Unknown desc = ${error.message}\n`);
        begun().end();
        ended.resolve(null);
      },
      bufferedBytes: () => begun().waitingBytes(),
    },
    signal,
  );
  begun();
  return ended.promise;
}

interface Writer {
  (message: LogMessage): void;
  failure(text: string): void;
}

function writerOf(query: URLSearchParams, put: (data: Uint8Array) => void, isRaw: boolean): Writer {
  const [hasTimes, hasDetails] = [isSet(query.get("timestamps")), isSet(query.get("details"))];
  const frame = (stream: typeof stdout | typeof stderr, parts: readonly Uint8Array[]): void => {
    const data = Buffer.concat(parts);
    if (!isRaw) put(frameHeader(stream, data.length));
    put(data);
  };
  const write = (message: LogMessage): void => {
    const { context, data, stream } = message;
    // A notice of the manager, such as a node that cannot be reached.
    const isNotice = (context?.taskId ?? "") === "";
    const head = `${hasTimes ? `${fixedTime(message.timestamp)} ` : ""}${hasDetails && !isNotice ? `${detailsOf(message)} ` : ""}`;
    frame(stream === LogStream.LOG_STREAM_STDERR || isNotice ? stderr : stdout, [Buffer.from(head), data]);
  };
  return Object.assign(write, { failure: (text: string) => frame(stderr, [Buffer.from(text)]) });
}

/** With nine digits of the second. */
function fixedTime(time: Timestamp | null): string {
  const { nanos, seconds } = time ?? Timestamp.create({});
  return `${new Date(seconds * 1_000).toISOString().slice(0, -"000Z".length)}${String(nanos).padStart(9, "0")}Z`;
}

/** Sorted, and escaped like a query. */
function detailsOf({ attrs, context }: LogMessage): string {
  const details = new Map(attrs.map(({ key, value }) => [key, value]));
  details.set(`${detailsPrefix}.node.id`, context?.nodeId ?? "");
  details.set(`${detailsPrefix}.service.id`, context?.serviceId ?? "");
  details.set(`${detailsPrefix}.task.id`, context?.taskId ?? "");
  return [...details]
    .toSorted(([a], [b]) => (a < b ? -1 : 1))
    .map(([key, value]) => `${encodeURIComponent(key)}=${encodeURIComponent(value)}`)
    .join(",");
}
