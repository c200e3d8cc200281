/** A tracer whose finished spans a test can read. */
import type { Tracer } from "@opentelemetry/api";
import { InMemorySpanExporter, SimpleSpanProcessor, TracerProvider, type ReadableSpan } from "@opentelemetry/sdk-trace";

interface Recorder {
  readonly tracer: Tracer;
  /** Finished spans in the order of their end. */
  spans(): readonly ReadableSpan[];
  /** The only finished span of that name. */
  span(name: string): ReadableSpan;
}

export function createRecorder(): Recorder {
  const exporter = new InMemorySpanExporter();
  const provider = new TracerProvider({ spanProcessors: [new SimpleSpanProcessor({ exporter })] });
  const spans = (): readonly ReadableSpan[] => exporter.getFinishedSpans();
  return {
    tracer: provider.getTracer("test"),
    spans,
    span: (name) => {
      const [only, ...more] = spans().filter((span) => span.name === name);
      if (only === undefined || more.length > 0)
        throw new Error(`${more.length + (only === undefined ? 0 : 1)} spans have the name ${name}`);
      return only;
    },
  };
}
