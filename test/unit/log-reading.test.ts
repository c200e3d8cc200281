// Requests for records of the log, at a link without a server: what arrives when is the test's.
import { once } from "node:events";
import { connect, createServer, type AddressInfo, type Socket } from "node:net";
import test, { type ExecutionContext } from "ava";
import { headers as newHeaders, type Msg } from "nats";
import type { Link } from "../../runtime/nats/link.ts";
import { LogReading } from "../../runtime/nats/log-reading.ts";
import { logStream } from "../../runtime/nats/streams.ts";
import { SimClock } from "../../runtime/sim/clock.ts";
import { SimRandom } from "../../runtime/sim/random.ts";
import { createSimTelemetry } from "../../runtime/sim/telemetry.ts";
import { SimTrace } from "../../runtime/sim/trace.ts";
import { until } from "../support/grpc-world.ts";

const count = 100;

/** A reading of a log with `count` records, once it has requested some. `onRecord`: called for each that is delivered. */
async function started(t: ExecutionContext, aheadBytes: number, onRecord: (sequence: number) => void = () => {}) {
  const answers: Readonly<Record<string, object>> = {
    [`$JS.API.STREAM.INFO.${logStream}`]: { state: { messages: count, first_seq: 1, last_seq: count } },
    [`$JS.API.CONSUMER.CREATE.${logStream}`]: { name: "consumer" },
  };
  /** Where the end of each request is reported. */
  const requests: string[] = [];
  let take: (message: Msg) => void = () => {};
  const link = {
    serving: { answered: () => {}, unanswered: () => {} },
    isConnected: () => true,
    onConnection: () => ({ unsubscribe: () => {} }),
    request: async (subject: string) => ({
      kind: "reply",
      message: { data: Buffer.from(JSON.stringify(answers[subject] ?? {})) },
    }),
    subscribe: (_subject: string, handle: typeof take) => {
      take = handle;
      return { unsubscribe: () => {} };
    },
    publish: (_subject: string, _data: Uint8Array, _headers: undefined, reply: string) => void requests.push(reply),
  } as unknown as Link;
  const random = new SimRandom("log-reading");
  const trace = new SimTrace(new SimClock(), { keepLines: false });
  const telemetry = createSimTelemetry({ who: "reader", random: random.fork("telemetry"), trace });
  const reader = { onRecord, onCaughtUp: () => {}, onGap: () => {} };
  const reading = new LogReading({ link, telemetry, random, fromSequence: 1, reader, aheadBytes });
  t.teardown(() => reading.unsubscribe());
  await until(() => requests.length === 1);
  const message = (fields: object): void => take({ data: new Uint8Array(0), ...fields } as unknown as Msg);
  return {
    requests,
    record: (sequence: number) =>
      message({ subject: "log", reply: `$JS.ACK.${logStream}.consumer.1.${sequence}.${sequence}.0.0` }),
    end: (request: number) => {
      const headers = newHeaders(409, "Message Size Exceeds MaxBytes");
      message({ subject: requests[request], reply: "", headers });
    },
  };
}

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

test("R5: while records wait for this process, the server does not count as silent", async (t) => {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const far = connect((server.address() as AddressInfo).port, "127.0.0.1");
  const [near] = (await once(server, "connection")) as [Socket];
  t.teardown(() => {
    for (const each of [near, far]) each.destroy();
    server.close();
  });
  const { record, requests } = await started(t, 32_768, (sequence) => {
    if (sequence !== 1) return;
    // The second record arrives during a long turn of the event loop.
    far.write(Buffer.from([2]));
    for (const end = performance.now() + 150; performance.now() < end;);
  });
  const seen: number[] = [];
  near.on("data", ([sequence = 0]: Buffer) => {
    record(sequence);
    seen.push(requests.length);
  });
  far.write(Buffer.from([1]));
  await until(() => seen.length === 2);
  t.deepEqual(seen, [1, 1]);
  await pause(50);
  t.is(requests.length, 1);
  await until(() => requests.length === 2);
});

test("R4: records and the end of a request that arrive together lead to one request", async (t) => {
  const { end, record, requests } = await started(t, 1);
  // The server may still send records of an earlier request.
  for (const sequence of [1, 2, 3]) record(sequence);
  end(0);
  await until(() => requests.length > 1);
  await pause(90);
  t.is(requests.length, 2);
});
