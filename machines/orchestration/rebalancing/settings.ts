/**
 * What operators say of rebalancing. Off unless a label says otherwise: `muster.rebalance=on` on a service, or on the
 * cluster for all services without the label. The cluster's labels also hold the limits (`rebalanceLabels`).
 */
import type { Annotations, Cluster, Service } from "../../../proto/gen/messages.ts";

export const rebalanceLabels = {
  /** `on` or `off`; on a service or on the cluster. */
  mode: "muster.rebalance",
  /** Duration such as `90s`; on the cluster, as the following. */
  settle: "muster.rebalance.settle",
  quiet: "muster.rebalance.quiet",
  round: "muster.rebalance.round",
  moves: "muster.rebalance.moves",
  window: "muster.rebalance.window",
  /** On a task that a move made: the id of the task that it follows. */
  from: "muster.rebalance.from",
} as const;

export interface RebalanceSettings {
  /** For services without a label of their own. */
  readonly isOn: boolean;
  /** For so long, in milliseconds, no node may have changed, and a task must have run, before anything moves. */
  readonly settleMs: number;
  /** For so long, in milliseconds, there must have been no incident. */
  readonly quietMs: number;
  readonly roundMovesMax: number;
  readonly windowMovesMax: number;
  readonly windowMs: number;
  /** Labels that cannot be understood, in sentences; the defaults stand in for them. */
  readonly flaws: readonly string[];
}

/**
 * A minute is longer than a node takes to be told its tasks and start them; five are the time for which SwarmKit's
 * scheduler holds failures against a node; sixty moves an hour change a small part of any cluster that needs them.
 */
const defaults = { settleMs: 60_000, quietMs: 300_000, roundMovesMax: 5, windowMovesMax: 60, windowMs: 3_600_000 };

const unitMs: Readonly<Record<string, number>> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000 };

export function settingsOf(cluster: Cluster | undefined): RebalanceSettings {
  const labels = cluster?.spec?.annotations?.labels ?? {};
  const flaws: string[] = [];
  const read = (label: string, absent: number, parse: (text: string) => number | null): number => {
    const text = labels[label];
    if (text === undefined) return absent;
    const value = parse(text);
    if (value === null) flaws.push(`the cluster's label ${label}=${text} cannot be understood`);
    return value ?? absent;
  };
  return {
    isOn: isOn(cluster?.spec?.annotations ?? null) ?? false,
    settleMs: read(rebalanceLabels.settle, defaults.settleMs, parseSpan),
    quietMs: read(rebalanceLabels.quiet, defaults.quietMs, parseSpan),
    roundMovesMax: read(rebalanceLabels.round, defaults.roundMovesMax, parseMoves),
    windowMovesMax: read(rebalanceLabels.moves, defaults.windowMovesMax, parseMoves),
    windowMs: read(rebalanceLabels.window, defaults.windowMs, parseSpan),
    flaws,
  };
}

function parseSpan(text: string): number | null {
  const [, amount, unit] = /^(\d{1,9})(ms|s|m|h)$/.exec(text) ?? [];
  return amount === undefined || unit === undefined ? null : Number(amount) * (unitMs[unit] ?? 0);
}

function parseMoves(text: string): number | null {
  return /^\d{1,6}$/.test(text) ? Number(text) : null;
}

/** Null when there is no label, or one that is neither on nor off. */
function isOn(annotations: Annotations | null): boolean | null {
  const text = annotations?.labels[rebalanceLabels.mode];
  if (text === "on" || text === "true") return true;
  return text === "off" || text === "false" ? false : null;
}

export function isRebalanced(service: Service, settings: RebalanceSettings): boolean {
  return isOn(service.spec?.annotations ?? null) ?? settings.isOn;
}
