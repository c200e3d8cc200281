/**
 * Traces as indented text, for tests that assert on the whole tree of spans of a request:
 *
 *   service create [person]
 *     service create [m1] service.id=web
 *       ledger commit [m1] manager=m1
 *
 * A line has the span's name, its process, its attributes without `muster.`, how it failed, and its links. Children follow in the
 * order of their starts, equal ones in the order of their lines. Ids and states have names in place of their values.
 */
import { SpanStatusCode } from "@opentelemetry/api";
import type { ReadableSpan } from "@opentelemetry/sdk-trace";
import type { ExecutionContext } from "ava";
import { TaskState, UpdateStatus_UpdateState } from "../../proto/gen/messages.ts";
import { declaredSpans, spanAttributes } from "../../runtime/telemetry/spans.ts";

export interface TreeOptions {
  /** All finished spans; those of other traces are only named as targets of links. */
  readonly spans: readonly ReadableSpan[];
  readonly traceId: string;
  /** Names of ids that occur in attributes. */
  readonly names: (id: string) => string | undefined;
  /** Attributes that are not shown, because they vary with the load. */
  readonly without?: readonly (keyof typeof spanAttributes)[];
}

const namesOf = (values: Readonly<Record<string, number>>): ReadonlyMap<number, string> =>
  new Map(Object.entries(values).map(([name, value]) => [value, name]));
const states: Readonly<Record<string, ReadonlyMap<number, string>>> = {
  "muster.task.state": namesOf(TaskState),
  "muster.update.state": namesOf(UpdateStatus_UpdateState),
};

const idOf = (span: ReadableSpan): string => span.spanContext().spanId;
const nanosOf = ([seconds, nanos]: readonly [number, number]): bigint =>
  BigInt(seconds) * 1_000_000_000n + BigInt(nanos);

export function spanTree({ names, spans, traceId, without = [] }: TreeOptions): string {
  const byId = new Map(spans.map((span) => [idOf(span), span]));
  const hidden = new Set<string>(without);
  const shownValue = (name: string, value: unknown): string =>
    states[name]?.get(Number(value)) ?? names(String(value)) ?? String(value);
  const line = (span: ReadableSpan): string => {
    const attributes = Object.entries(span.attributes)
      .filter(([name]) => !hidden.has(name))
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([name, value]) => ` ${name.replace(/^muster\./, "")}=${shownValue(name, value)}`);
    const failure = span.status.code === SpanStatusCode.ERROR ? ` FAILED: ${span.status.message ?? ""}` : "";
    const links = span.links.map(({ context }) => ` -> ${linked(byId.get(context.spanId))}`);
    return `${span.name} [${processOf(span)}]${attributes.join("")}${failure}${links.sort().join("")}`;
  };
  const linked = (span: ReadableSpan | undefined): string => {
    const parent = byId.get(span?.parentSpanContext?.spanId ?? "");
    if (span === undefined) return "a span that is missing";
    return parent === undefined ? span.name : `${span.name} of ${line(parent)}`;
  };
  const children = new Map<string, ReadableSpan[]>();
  for (const span of spans) {
    if (span.spanContext().traceId !== traceId) continue;
    const parentId = span.parentSpanContext?.spanId ?? "";
    // A span whose parent is missing is shown at the top, with a remark.
    const key = byId.has(parentId) ? parentId : "";
    children.set(key, [...(children.get(key) ?? []), span]);
  }
  const draw = (span: ReadableSpan, depth: number): readonly string[] => {
    const remark = depth === 0 && span.parentSpanContext !== undefined ? " (its parent is missing)" : "";
    return [`${"  ".repeat(depth)}${line(span)}${remark}`, ...below(idOf(span), depth + 1)];
  };
  const below = (id: string, depth: number): readonly string[] =>
    (children.get(id) ?? [])
      .map((span) => ({ at: nanosOf(span.startTime), lines: draw(span, depth) }))
      .sort((a, b) => Number(a.at - b.at) || (a.lines.join("\n") < b.lines.join("\n") ? -1 : 1))
      .flatMap(({ lines }) => lines);
  return below("", 0).join("\n");
}

const processOf = ({ resource }: ReadableSpan): string => String(resource.attributes["host.name"]);

/** Without the indentation of the source around it. */
function dedented(text: string): string {
  const lines = text.split("\n").filter((line) => line.trim() !== "");
  const indent = Math.min(...lines.map((line) => line.search(/\S/)));
  return lines.map((line) => line.slice(indent)).join("\n");
}

/** The trace is exactly this tree, and each of its spans is declared. */
export function assertTrace(t: ExecutionContext, options: TreeOptions, expected: string): void {
  t.is(spanTree(options), dedented(expected));
  t.deepEqual(options.spans.flatMap(undeclared), []);
}

const declared = new Map(declaredSpans.map((span) => [span.name, span]));

/** Differences between the span and its declaration (`runtime/telemetry/spans.ts`). A command's span has any name. */
export function undeclared(span: ReadableSpan): readonly string[] {
  const service = span.resource.attributes["service.name"];
  const found = service === "muster-cli" ? declaredSpans[0] : declared.get(span.name);
  if (found === undefined) return [`span ${span.name} is not declared`];
  const problems: string[] = [];
  if (found.kind !== kinds[span.kind]) problems.push(`${span.name} has kind ${kinds[span.kind]}, not ${found.kind}`);
  if (span.links.length > 0 && found.links === "") problems.push(`${span.name} declares no links`);
  for (const [name, value] of Object.entries(span.attributes)) {
    const attribute = (found.attributes as readonly string[]).includes(name)
      ? spanAttributes[name as keyof typeof spanAttributes]
      : undefined;
    if (attribute === undefined) problems.push(`${span.name} does not declare ${name}`);
    else if (typeof value !== attribute.type) problems.push(`${name} of ${span.name} is a ${typeof value}`);
  }
  return problems;
}

/** By OpenTelemetry's SpanKind. */
const kinds = ["internal", "server", "client", "producer", "consumer"];
