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
import { LogsLines, type LogLines } from "../../../proto/log-lines.ts";
import { isOlder } from "../api-version.ts";
import { Failure } from "../failure.ts";
import { findService, findTask } from "../find.ts";
import { isSet, timestampOf } from "../go-text.ts";
import type { DockerRequest, Handler } from "../request.ts";
import { findContainer } from "./containers.ts";

/** Numbers of the streams in frames. */
const stdout = 1;
const stderr = 2;
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

async function follow(request: DockerRequest, find: () => Promise<Source>): Promise<null> {
  const { calls, query, response, version } = request;
  const streams: LogStream[] = [];
  if (isSet(query.get("stdout"))) streams.push(LogStream.LOG_STREAM_STDOUT);
  if (isSet(query.get("stderr"))) streams.push(LogStream.LOG_STREAM_STDERR);
  if (streams.length === 0) throw new Failure(500, "Bad parameters: you must choose at least one stream");
  const { selector, spec } = await find();
  const tail = tailOf(query.get("tail") ?? "");
  const since = timestampOf(
    query.get("since") ?? "",
    (why) => new Failure(500, `could not parse since timestamp: ${why}`),
  );
  const isRaw = spec?.container?.tty === true;
  const write = writerOf(request, isRaw);
  const ended = Promise.withResolvers<null>();
  calls.stream(
    LogsLines.methods.SubscribeLogs,
    SubscribeLogsRequest.create({
      selector,
      options: LogSubscriptionOptions.create({
        streams,
        follow: isSet(query.get("follow")),
        tail,
        since: since === null ? null : Timestamp.create(since),
      }),
    }),
    {
      write: (lines: LogLines) => {
        for (const message of SubscribeLogsMessage.decode(lines).messages) write(message);
      },
      end: (error) => {
        if (error !== undefined)
          write.failure(`Error grabbing logs: rpc error: code = Unknown desc = ${error.message}\n`);
        response.end();
        ended.resolve(null);
      },
      bufferedBytes: () => response.writableLength,
    },
  );
  response.writeHead(200, {
    "content-type":
      isOlder(version, "1.42") || isRaw
        ? "application/vnd.docker.raw-stream"
        : "application/vnd.docker.multiplexed-stream",
  });
  response.flushHeaders();
  return ended.promise;
}

interface Writer {
  (message: LogMessage): void;
  failure(text: string): void;
}

function writerOf({ query, response }: DockerRequest, isRaw: boolean): Writer {
  const [hasTimes, hasDetails] = [isSet(query.get("timestamps")), isSet(query.get("details"))];
  const frame = (stream: number, parts: readonly Uint8Array[]): void => {
    const data = Buffer.concat(parts);
    if (!isRaw) {
      const header = Buffer.alloc(8);
      header[0] = stream;
      header.writeUInt32BE(data.length, 4);
      response.write(header);
    }
    response.write(data);
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
