// Task output as managers carry it: the same lines as the generated codecs see, whatever the bytes.
import fc from "fast-check";
import test from "ava";
import { checkPublish, linesWithin } from "../../machines/logs/publish.ts";
import {
  LogAttr,
  LogContext,
  LogMessage,
  LogStream,
  PublishLogsMessage,
  SubscribeLogsMessage,
  Timestamp,
} from "../../proto/gen/messages.ts";
import { joinedLines, LineCursor, LogsLines, publishedLines } from "../../proto/log-lines.ts";

const text = fc.string({ maxLength: 30, unit: "grapheme" });
const message: fc.Arbitrary<LogMessage> = fc
  .record({
    context: fc.option(fc.record({ serviceId: text, nodeId: fc.constantFrom("n1", "n2"), taskId: text })),
    time: fc.option(fc.record({ seconds: fc.nat({ max: 4e9 }), nanos: fc.nat({ max: 999_999_999 }) })),
    stream: fc.constantFrom(...Object.values(LogStream)),
    data: fc.uint8Array({ maxLength: 300 }),
    attrs: fc.array(fc.record({ key: text, value: text }), { maxLength: 3 }),
  })
  .map(({ attrs, context, data, stream, time }) =>
    LogMessage.create({
      context: context === null ? null : LogContext.create(context),
      timestamp: time === null ? null : Timestamp.create(time),
      stream,
      data,
      attrs: attrs.map((attr) => LogAttr.create(attr)),
    }),
  );

const published = (messages: readonly LogMessage[], subscriptionId = "s", close = false): Uint8Array =>
  PublishLogsMessage.encode(PublishLogsMessage.create({ subscriptionId, messages, close }));

const json = (lines: Uint8Array) => SubscribeLogsMessage.toJson(SubscribeLogsMessage.decode(lines));

test("a node's output reaches a subscriber line by line, with its source and time", (t) => {
  fc.assert(
    fc.property(fc.array(message, { maxLength: 20 }), text, fc.boolean(), (messages, id, close) => {
      const bytes = published(messages, id, close);
      const found = publishedLines.decode(bytes);
      t.is(found.subscriptionId, id);
      t.is(found.close, close);
      t.deepEqual(json(found.lines), json(SubscribeLogsMessage.encode(SubscribeLogsMessage.create({ messages }))));
      const cursor = new LineCursor(found.lines);
      for (const { context, data, stream, timestamp } of messages) {
        t.true(cursor.next());
        t.deepEqual(cursor.context, {
          serviceId: context?.serviceId ?? "",
          nodeId: context?.nodeId ?? "",
          taskId: context?.taskId ?? "",
        });
        t.is(cursor.dataBytes, data.length);
        t.is(cursor.stream, stream);
        t.is(cursor.seconds, timestamp?.seconds ?? null);
        t.is(cursor.nanos, timestamp?.nanos ?? 0);
      }
      t.false(cursor.next());
      t.deepEqual(found.nodeIds, [...new Set(messages.map(({ context }) => context?.nodeId ?? ""))]);
      t.deepEqual(
        PublishLogsMessage.toJson(PublishLogsMessage.decode(publishedLines.encode(found))),
        PublishLogsMessage.toJson(PublishLogsMessage.decode(bytes)),
      );
    }),
    { numRuns: 200 },
  );
});

test("invalid messages are rejected; every subscriber can read the accepted ones", (t) => {
  fc.assert(
    fc.property(
      fc.array(message, { maxLength: 4 }),
      fc.array(fc.record({ at: fc.nat({ max: 600 }), byte: fc.nat({ max: 255 }) }), { maxLength: 6 }),
      fc.nat({ max: 600 }),
      (messages, changes, cut) => {
        const bytes = Uint8Array.from(published(messages));
        for (const { at, byte } of changes) if (at < bytes.length) bytes[at] = byte;
        const damaged = cut < bytes.length ? bytes.subarray(0, cut) : bytes;
        try {
          const { lines } = publishedLines.decode(damaged);
          t.notThrows(() => SubscribeLogsMessage.decode(lines));
          t.notThrows(() => LogsLines.methods.SubscribeLogs.response.decode(lines));
        } catch (error) {
          t.true(error instanceof RangeError, String(error));
        }
      },
    ),
    { numRuns: 3_000 },
  );
});

test("a line with a second context, by which it would pass as another node's, is rejected", (t) => {
  const [own, other] = ["n1", "n2"].map((nodeId) =>
    LogMessage.encode(LogMessage.create({ context: LogContext.create({ nodeId }) })),
  ) as [Uint8Array, Uint8Array];
  const line = [...own, ...other];
  const bytes = Uint8Array.from([0x0a, 1, 0x73, 0x12, line.length, ...line]);
  t.is(PublishLogsMessage.decode(bytes).messages[0]?.context?.nodeId, "n2", "a reader's view of it");
  t.throws(() => publishedLines.decode(bytes), { instanceOf: RangeError, message: /two contexts/ });
  const lines = publishedLines.decode(published([LogMessage.create({ context: LogContext.create({ nodeId: "n2" }) })]));
  t.is(checkPublish(lines, { nodeId: "n1", subscriptionId: null }, () => true).kind, "foreign");
});

test("output is split between lines, and a line that is too long within, without losing a byte", (t) => {
  fc.assert(
    fc.property(fc.array(message, { maxLength: 20 }), fc.integer({ min: 400, max: 3_000 }), (messages, bytesMax) => {
      const long = LogMessage.create({
        context: LogContext.create({ nodeId: "n1", taskId: "long" }),
        data: Uint8Array.from({ length: 5_000 }, (_, at) => at),
        attrs: [LogAttr.create({ key: "a", value: "b" })],
      });
      const { lines } = publishedLines.decode(published([...messages.slice(0, 5), long, ...messages.slice(5)]));
      const parts = linesWithin(lines, bytesMax);
      t.true(parts.every((part) => part.length > 0 && part.length <= bytesMax));
      const all = SubscribeLogsMessage.decode(joinedLines(parts)).messages;
      const dataOf = (of: readonly LogMessage[]): Buffer => Buffer.concat(of.map(({ data }) => data));
      t.deepEqual(dataOf(all), dataOf(SubscribeLogsMessage.decode(lines).messages));
      const pieces = all.filter(({ context }) => context?.taskId === "long");
      t.deepEqual(
        pieces.map(({ attrs }) => attrs.length),
        pieces.map((_, at) => (at === 0 ? 1 : 0)),
      );
    }),
    { numRuns: 100 },
  );
});
