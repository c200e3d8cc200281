/** A node's dataplane: passes the node's policies to the driver, and reports the state of the driver and its endpoints. */
import { endpointOfKey, deltasOf } from "../../machines/policy/felix.ts";
import { DataplaneEndpointReport, DataplaneReport, type DataplaneUpdate } from "../../proto/gen/messages.ts";
import { spans } from "../../runtime/telemetry/spans.ts";
import { continueSpan, describeSpan, endSpan } from "../tracing.ts";
import { DataplaneActor, type DataplaneOptions, type DataplanePorts } from "./dataplane.ts";
import type { NodeDataplane } from "./policy-follower.ts";

interface DrivenDataplane extends NodeDataplane {
  /** Ends the driver; its rules stay in the kernel. Resolves when it has exited. */
  end(): Promise<void>;
}

/** `settings`: take precedence over the cluster's. */
export function driveDataplane(
  ports: DataplanePorts,
  { generation, name, settings }: Pick<DataplaneOptions, "generation" | "name" | "settings">,
): DrivenDataplane {
  const listeners = new Set<(report: DataplaneReport) => void>();
  let version = 0;
  let restarts = 0;
  let isTelling = false;
  const driver = new DataplaneActor(ports, {
    name,
    generation,
    settings,
    onNews: ({ state }) => {
      if (state === "restarting") restarts += 1;
      tell();
    },
    onSince: () => tell(),
    onStatus: () => tell(),
  });

  function report(): DataplaneReport {
    const { reason, state } = driver.news;
    const endpoints: DataplaneEndpointReport[] = [];
    const hostEndpoints: DataplaneEndpointReport[] = [];
    for (const [key, status] of driver.statuses) {
      const of = endpointOfKey(key);
      if (of === null) continue;
      (of.kind === "host" ? hostEndpoints : endpoints).push(DataplaneEndpointReport.create({ id: of.id, status }));
    }
    return DataplaneReport.create({
      state: state === "wait-for-ready" ? "waiting" : state,
      reason,
      restarts,
      endpoints,
      hostEndpoints,
      driver: name,
      driverSince: Math.floor((driver.since ?? 0) / 1_000),
    });
  }

  /** Once for simultaneous changes: a starting driver reports each endpoint separately. */
  function tell(): void {
    if (isTelling) return;
    isTelling = true;
    ports.clock.soon(() => {
      isTelling = false;
      const said = report();
      for (const listener of listeners) listener(said);
    });
  }

  return {
    take: (change: DataplaneUpdate, traceparent: string) => {
      const span = continueSpan(ports, spans.policyApply, traceparent);
      if (change.config !== null) driver.configure({ ...change.config.values, ...settings });
      const deltas = deltasOf(change);
      for (const delta of deltas) driver.apply(delta);
      if (span !== null) {
        describeSpan(span, spans.policyApply, { "muster.changes": deltas.length });
        driver.whenSent(() => endSpan(ports, span));
      }
      if (version === 0) driver.ready();
      version = Math.max(1, change.version);
    },
    onReport: (listener) => {
      listeners.add(listener);
      listener(report());
      return () => listeners.delete(listener);
    },
    end: () => driver.end(),
  };
}
