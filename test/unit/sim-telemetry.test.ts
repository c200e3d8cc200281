// The telemetry of simulated processes: spans are recorded for whoever reads them, and otherwise cost nothing.
import test from "ava";
import { SimClock } from "../../runtime/sim/clock.ts";
import { SimRandom } from "../../runtime/sim/random.ts";
import { createSimTelemetry } from "../../runtime/sim/telemetry.ts";
import { SimTrace } from "../../runtime/sim/trace.ts";

function traceOf(dropLines: boolean): SimTrace {
  return new SimTrace(new SimClock(), { keepLines: false, dropLines });
}

test("spans are recorded if the trace is hashed, even if its lines are not kept", (t) => {
  const trace = traceOf(false);
  const { tracer } = createSimTelemetry({ who: "manager-1", random: new SimRandom("x"), trace });
  tracer.startSpan("work").end();
  t.is(trace.count, 1);
});

test("a reader of spans gets them although the trace is dropped", (t) => {
  const names: string[] = [];
  const { tracer } = createSimTelemetry({
    who: "manager-1",
    random: new SimRandom("x"),
    trace: traceOf(true),
    onSpan: ({ name }) => names.push(name),
  });
  tracer.startSpan("work").end();
  t.deepEqual(names, ["work"]);
});

test("spans that nobody reads are not recorded", (t) => {
  const { tracer } = createSimTelemetry({ who: "manager-1", random: new SimRandom("x"), trace: traceOf(true) });
  t.false(tracer.startSpan("work").isRecording());
});
