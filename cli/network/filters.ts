/** `--filter` of `muster network ls` and `muster network prune`: Docker's keys. */
import type { Network, Timestamp } from "../../proto/gen/messages.ts";
import { parseBoolean } from "../boolean.ts";
import { UsageError } from "../../lib/user-error.ts";
import { networkName } from "../manager-client.ts";
import { parsePast } from "../moment.ts";

export const networkFilterKeys = ["dangling", "driver", "id", "label", "name", "scope", "type"] as const;

/** Label of networks that stand for each engine's predefined network of that name; Docker does not list them either. */
export const predefinedLabel = "com.docker.swarm.predefined";

type Key = (typeof networkFilterKeys)[number];

function meets(network: Network, key: Key, value: string, isUnused: (network: Network) => boolean): boolean {
  switch (key) {
    case "dangling":
      return isUnused(network) === parseBoolean(value);
    case "driver":
      return (network.driverState?.name || network.spec?.driverConfig?.name) === value;
    case "id":
      return network.id.startsWith(value);
    case "name":
      // Docker matches any part of the name.
      return networkName(network).includes(value);
    case "scope":
      return value === "swarm";
    case "type":
      return value === (network.spec?.ingress === true ? "builtin" : "custom");
    case "label":
      return hasLabel(network, value);
  }
}

/** `KEY` or `KEY=VALUE`. */
function hasLabel(network: Network, wanted: string): boolean {
  const at = wanted.indexOf("=");
  const held = network.spec?.annotations?.labels[at < 0 ? wanted : wanted.slice(0, at)];
  return held !== undefined && (at < 0 || held === wanted.slice(at + 1));
}

/** Whether a filter depends on what uses the networks. */
export function asksForUse(texts: readonly string[]): boolean {
  return texts.some((text) => text.startsWith("dangling="));
}

/**
 * Values of one key are ORed, but labels are ANDed, as in Docker. `isUnused` answers `dangling=`: whether nothing uses a
 * network. Throws UsageError.
 */
export function matchingNetworks(
  texts: readonly string[],
  isUnused: (network: Network) => boolean,
): (network: Network) => boolean {
  const wanted = texts.map((text) => {
    const at = text.indexOf("=");
    const key = networkFilterKeys.find((known) => known === text.slice(0, at));
    if (key === undefined) {
      throw new UsageError(
        `invalid filter "${text}": expected ${networkFilterKeys.map((known) => `${known}=`).join(", ")}`,
      );
    }
    const value = text.slice(at + 1);
    if (key === "dangling" && parseBoolean(value) === null)
      throw new UsageError(`invalid filter "dangling=${value}": expected true or false`);
    return { key, value };
  });
  const byKey = Map.groupBy(wanted, ({ key }) => key);
  return (network) =>
    [...byKey].every(([key, pairs]) =>
      key === "label"
        ? pairs.every(({ value }) => meets(network, key, value, isUnused))
        : pairs.some(({ value }) => meets(network, key, value, isUnused)),
    );
}

/**
 * Selects which unused networks to prune: `until=` for those created before a time, `label=` for those with all the labels,
 * `label!=` for those that lack one of them. Ingress and predefined networks are never pruned. `now`: milliseconds since the
 * epoch. Throws UsageError.
 */
export function prunableNetworks(texts: readonly string[], now: number): (network: Network) => boolean {
  const wanted: string[] = [];
  const spared: string[] = [];
  let until: number | null = null;
  for (const text of texts) {
    const [, key, value = ""] = /^(label|label!|until)=(.*)$/s.exec(text) ?? [];
    if (key === undefined) throw new UsageError(`invalid filter "${text}": expected label=, label!= or until=`);
    if (key === "label") wanted.push(value);
    else if (key === "label!") spared.push(value);
    else if (until !== null) throw new UsageError("only one until filter is allowed");
    else until = seconds(parsePast(value, now, "filter until"));
  }
  return (network) => {
    const { spec, meta } = network;
    if (spec?.ingress === true || spec?.annotations?.labels[predefinedLabel] !== undefined) return false;
    if (until !== null && seconds(meta?.createdAt ?? null) > until) return false;
    if (spared.length > 0 && spared.every((label) => hasLabel(network, label))) return false;
    return wanted.every((label) => hasLabel(network, label));
  };
}

function seconds(time: Timestamp | null): number {
  return time === null ? 0 : time.seconds + time.nanos / 1e9;
}
