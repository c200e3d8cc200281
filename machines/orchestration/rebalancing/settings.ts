/**
 * The operator's rebalancing settings. Off by default; `muster.rebalance=on` on a service turns it on, and on the cluster for
 * all services without the label. The limits are labels of the cluster (`rebalanceLabels`).
 */
import { goDurationMs } from "../../../lib/go-duration.ts";
import type { Annotations, Cluster, Service } from "../../../proto/gen/messages.ts";

export const rebalanceLabels = {
  /** `on` or `off`; on a service or on the cluster. */
  mode: "muster.rebalance",
  /** Duration such as `90s`; on the cluster, like the following. */
  settle: "muster.rebalance.settle",
  quiet: "muster.rebalance.quiet",
  round: "muster.rebalance.round",
  moves: "muster.rebalance.moves",
  window: "muster.rebalance.window",
  /** On a task created by a move: the id of the task that it replaces. */
  from: "muster.rebalance.from",
} as const;

export interface RebalanceSettings {
  /** For services without a label of their own. */
  readonly isOn: boolean;
  /** Before a move, no node may have changed, and the task must have run, for this time in milliseconds. */
  readonly settleMs: number;
  /** Minimum time without an incident, in milliseconds. */
  readonly quietMs: number;
  readonly roundMovesMax: number;
  readonly windowMovesMax: number;
  readonly windowMs: number;
  /** Invalid labels, as sentences; their defaults apply. */
  readonly flaws: readonly string[];
}

/**
 * One minute is longer than a node takes to get its tasks and start them; five minutes is how long SwarmKit's scheduler
 * counts failures against a node; sixty moves an hour affect a small part of any cluster that needs rebalancing.
 */
const defaults = { settleMs: 60_000, quietMs: 300_000, roundMovesMax: 5, windowMovesMax: 60, windowMs: 3_600_000 };

export function settingsOf(cluster: Cluster | undefined): RebalanceSettings {
  const labels = cluster?.spec?.annotations?.labels ?? {};
  const flaws: string[] = [];
  const read = (label: string, absent: number, parse: (text: string) => number | null): number => {
    const text = labels[label];
    if (text === undefined) return absent;
    const value = parse(text);
    if (value === null) flaws.push(`invalid label ${label}=${text} on the cluster: the default applies`);
    return value ?? absent;
  };
  return {
    isOn: isOn(cluster?.spec?.annotations ?? null) ?? false,
    settleMs: read(rebalanceLabels.settle, defaults.settleMs, goDurationMs),
    quietMs: read(rebalanceLabels.quiet, defaults.quietMs, goDurationMs),
    roundMovesMax: read(rebalanceLabels.round, defaults.roundMovesMax, parseMoves),
    windowMovesMax: read(rebalanceLabels.moves, defaults.windowMovesMax, parseMoves),
    windowMs: read(rebalanceLabels.window, defaults.windowMs, goDurationMs),
    flaws,
  };
}

function parseMoves(text: string): number | null {
  return /^\d{1,6}$/.test(text) ? Number(text) : null;
}

/** Null if the label is absent, or neither on nor off. */
function isOn(annotations: Annotations | null): boolean | null {
  const text = annotations?.labels[rebalanceLabels.mode];
  if (text === "on" || text === "true") return true;
  return text === "off" || text === "false" ? false : null;
}

export function isRebalanced(service: Service, settings: RebalanceSettings): boolean {
  return isOn(service.spec?.annotations ?? null) ?? settings.isOn;
}
