/** Metrics on prom-client's registry, in the text format that Prometheus scrapes. */
import prom from "prom-client";
import type { Counter, Gauge, Headers, Histogram, Metrics, Subscription } from "../ports/index.ts";

/** Buckets in seconds, from a commit on an idle machine to the longest request deadline. */
const secondsBuckets = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30];

export interface PrometheusMetrics extends Metrics {
  /**
   * Adds process metrics: CPU, memory, garbage collection, event-loop delay. Only for processes that expose them: the
   * delay is sampled every 10 ms, which costs more than 1 % of a core.
   */
  watchProcess(): void;
  /** Calls `write` before each `expose`, for gauges that are cheaper to compute on demand. It must not throw. */
  onExpose(write: () => void): Subscription;
  /** The whole registry as text, with its content type. */
  expose(): Promise<{ readonly text: string; readonly contentType: string }>;
}

/** prom-client needs declared label names, so a metric is created when it is first written, with the labels of that write. */
export function createMetrics(): PrometheusMetrics {
  const registry = new prom.Registry();
  const writers = new Set<() => void>();
  return {
    watchProcess: () => prom.collectDefaultMetrics({ register: registry, prefix: "muster_" }),
    counter: once((name, help): Counter => {
      let metric: prom.Counter | undefined;
      return {
        add: (value = 1, labels: Headers = {}) => {
          metric ??= new prom.Counter({ name, help, labelNames: Object.keys(labels), registers: [registry] });
          metric.inc(labels, value);
        },
      };
    }),
    gauge: once((name, help): Gauge => {
      let metric: prom.Gauge | undefined;
      return {
        set: (value, labels: Headers = {}) => {
          metric ??= new prom.Gauge({ name, help, labelNames: Object.keys(labels), registers: [registry] });
          metric.set(labels, value);
        },
      };
    }),
    histogram: once((name, help): Histogram => {
      let metric: prom.Histogram | undefined;
      return {
        observe: (value, labels: Headers = {}) => {
          metric ??= new prom.Histogram({
            name,
            help,
            labelNames: Object.keys(labels),
            buckets: secondsBuckets,
            registers: [registry],
          });
          metric.observe(labels, value);
        },
      };
    }),
    onExpose: (write) => {
      writers.add(write);
      return { unsubscribe: () => writers.delete(write) };
    },
    expose: async () => {
      for (const write of writers) write();
      return { text: await registry.metrics(), contentType: registry.contentType };
    },
  };
}

function once<Metric>(make: (name: string, help: string) => Metric): (name: string, help: string) => Metric {
  const created = new Map<string, Metric>();
  return (name, help) => {
    const known = created.get(name);
    if (known !== undefined) return known;
    const metric = make(name, help);
    created.set(name, metric);
    return metric;
  };
}
