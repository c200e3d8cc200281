/** `muster network ls --filter`: Docker's keys. */
import type { Network } from "../proto/gen/messages.ts";
import { UsageError } from "./command.ts";
import { networkName } from "./manager-client.ts";

export const networkFilterKeys = ["driver", "id", "label", "name", "scope", "type"] as const;

/** Marks networks that stand for each engine's own of that name; Docker does not list them either. */
export const predefinedLabel = "com.docker.swarm.predefined";

type Key = (typeof networkFilterKeys)[number];

function meets(network: Network, key: Key, value: string): boolean {
  switch (key) {
    case "driver":
      return (network.driverState?.name || network.spec?.driverConfig?.name) === value;
    case "id":
      return network.id.startsWith(value);
    case "name":
      // Docker looks for it anywhere in the name.
      return networkName(network).includes(value);
    case "scope":
      return value === "swarm";
    case "type":
      return value === (network.spec?.ingress === true ? "builtin" : "custom");
    case "label": {
      const at = value.indexOf("=");
      const held = network.spec?.annotations?.labels[at < 0 ? value : value.slice(0, at)];
      return held !== undefined && (at < 0 || held === value.slice(at + 1));
    }
  }
}

/** Values of one key are alternatives, but labels are demands, as in Docker. Throws UsageError. */
export function matchingNetworks(texts: readonly string[]): (network: Network) => boolean {
  const wanted = texts.map((text) => {
    const at = text.indexOf("=");
    const key = networkFilterKeys.find((known) => known === text.slice(0, at));
    if (key === undefined) {
      throw new UsageError(`--filter takes ${networkFilterKeys.map((known) => `${known}=`).join(", ")}, not '${text}'`);
    }
    return { key, value: text.slice(at + 1) };
  });
  const byKey = Map.groupBy(wanted, ({ key }) => key);
  return (network) =>
    [...byKey].every(([key, pairs]) =>
      key === "label"
        ? pairs.every(({ value }) => meets(network, key, value))
        : pairs.some(({ value }) => meets(network, key, value)),
    );
}
