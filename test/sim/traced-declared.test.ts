/** The spans of whole seeds: declared, the same in each run, and in a format that other tools read. */
import { ProtobufTraceSerializer } from "@opentelemetry/otlp-transformer";
import test from "ava";
import type { MethodDescriptor } from "../../proto/codec.ts";
import { ControlService } from "../../proto/gen/messages.ts";
import { controlSpans, spans as declaredOfActors } from "../../runtime/telemetry/spans.ts";
import { drawOptions, type SimOptions } from "../../simulation/options.ts";
import { quietOptions } from "../../simulation/quiet-options.ts";
import { runSeed } from "../../simulation/world.ts";
import { spansOfBytes, spansOfJson } from "../support/otlp-schema.ts";
import { undeclared } from "../support/span-tree.ts";
import { otlpJson } from "./otlp.ts";
import { tracedCluster } from "./traced.ts";

/** Task output, driver plugins that are restarted, rollouts and network policy, without other faults. */
const options: SimOptions = {
  ...quietOptions({ seed: 1, managers: 3, agents: 3 }),
  faultsMs: 30_000,
  tasks: { refusal: 0, failure: 0, lifeMsMax: 0, prepareMsMax: 100, startMsMax: 300, stopMsMax: 300 },
  operations: 10,
  rolloutOperations: 20,
  logOperations: 10,
  policyOperations: 15,
  driverOperations: 12,
  drivers: { ...quietOptions({ seed: 1, managers: 3, agents: 3 }).drivers, pluginCrashMs: 3_000 },
};
/** Declared attributes that this run does not record, each with the reason. */
const unrecorded: Readonly<Record<string, string>> = {
  "task report rpc.grpc.status_code": "no leader takes the report in time",
  "task recover rpc.grpc.status_code": "the driver has forgotten the task",
  "logs publish rpc.grpc.status_code": "a node publishes what nobody asked for: test/unit/log-broker.test.ts",
};

interface Described {
  readonly name: string;
  readonly attributes: readonly string[];
}

/** A name for each declared span, and for each of its attributes. */
const marksOf = ({ attributes, name }: Described): readonly string[] => [
  name,
  ...attributes.map((attribute) => `${name} ${attribute}`),
];

test.serial("only declared spans and attributes are recorded, and all of them", async (t) => {
  t.timeout(120_000);
  const recorded = new Set<string>();
  const { failure, spans } = await runSeed(options, { spans: true });
  t.is(failure, null);
  t.deepEqual([...new Set(spans.flatMap(undeclared))], []);
  for (const { attributes, name } of spans)
    for (const mark of marksOf({ name, attributes: Object.keys(attributes) })) recorded.add(mark);
  const missing = Object.values<Described>(declaredOfActors)
    .flatMap(marksOf)
    .filter((mark) => !recorded.has(mark));
  t.deepEqual(missing.sort(), Object.keys(unrecorded).sort(), "list attributes that are not recorded, with the reason");
});

test.serial(
  "two runs of a seed have the same spans, in OTLP's JSON and in its protobuf, with times of the simulation",
  async (t) => {
    t.timeout(120_000);
    const [one, two] = [
      await runSeed(drawOptions(4), { spans: true }),
      await runSeed(drawOptions(4), { spans: true, recording: true }),
    ];
    t.is(one.digest, two.digest, "keeping a recording changes nothing");
    const json = otlpJson(one.spans);
    t.deepEqual(json, otlpJson(two.spans));
    const spans = spansOfJson(json);
    t.deepEqual(spans, spansOfBytes(ProtobufTraceSerializer.serializeRequest([...one.spans]) ?? new Uint8Array()));
    t.is(spans.length, one.spans.length);
    t.true(spans.length > 100);
    for (const { endTimeUnixNano, parentSpanId, spanId, startTimeUnixNano, traceId } of spans) {
      const bytesOf = (id: string): number => Buffer.from(id, "base64").length;
      t.deepEqual([bytesOf(traceId), bytesOf(spanId), bytesOf(parentSpanId) || 8], [16, 8, 8]);
      t.true(BigInt(endTimeUnixNano) >= BigInt(startTimeUnixNano));
      t.regex(new Date(Number(BigInt(startTimeUnixNano) / 1_000_000n)).toISOString(), /^(?:2025-12-31|2026-01-01)T/);
    }
  },
);

test.serial("each method of Control that changes something records its span, also when it is refused", async (t) => {
  const { world } = await tracedCluster({ managers: 1, agents: 1 });
  for (const [name, { attributes }] of Object.entries<Described>(controlSpans)) {
    const method = ControlService.methods[name as keyof typeof controlSpans] as unknown as MethodDescriptor<
      object,
      object
    >;
    const noun = (attributes[0] ?? "").split(".")[1] ?? "";
    const request = method.request.create(name.startsWith("Create") ? {} : { [`${noun}Id`]: "nothing" });
    await world.command(name, (channel, options) => channel.unary(method, request, options).catch(() => ({})));
    await world.pass(100);
    const span = world.scene.simulation.spans?.findLast(({ kind }) => kind === 1);
    t.deepEqual(span === undefined ? [] : undeclared(span), []);
    t.is(span?.name, controlSpans[name as keyof typeof controlSpans].name);
    const expected = name.startsWith("Create") ? ["rpc.grpc.status_code"] : attributes.toSorted();
    t.deepEqual(Object.keys(span?.attributes ?? {}).sort(), expected as string[]);
  }
});
