/**
 * Builds a network's spec from the flags of `muster network create`: matches each range, gateway and reserved address to its
 * subnet.
 */
import { containsAddress, containsRange, parseAddress, parseCidr, type Prefix } from "../../lib/ip-address.ts";
import { Annotations, Driver, IPAMConfig, IPAMOptions, NetworkSpec } from "../../proto/gen/messages.ts";
import { type FlagHelp } from "../help/description.ts";
import { UsageError } from "../../lib/user-error.ts";
import type { FlagValues } from "../service/flags.ts";
import { parseLabels, parsePairs } from "../values.ts";

type Help = Required<Pick<FlagHelp, "group" | "help">> & Pick<FlagHelp, "value"> & { readonly short?: string };

const text = (help: Help) => ({ type: "string", ...help }) as const;
const texts = (help: Help) => ({ type: "string", multiple: true, ...help }) as const;
const yes = (help: Help) => ({ type: "boolean", ...help }) as const;

const general = "Network";
const addresses = "Addresses";

/** Docker's names. */
export const networkFlags = {
  driver: text({ group: general, value: "NAME", help: "Network driver (default overlay)", short: "d" }),
  opt: texts({ group: general, value: "KEY[=VALUE]", help: "Network driver option, such as encrypted", short: "o" }),
  label: texts({ group: general, value: "KEY=VALUE", help: "Network label" }),
  attachable: yes({ group: general, help: "Allow standalone containers to attach" }),
  ingress: yes({ group: general, help: "Create the ingress (routing mesh) network" }),
  internal: yes({ group: general, help: "Restrict external access to the network" }),
  scope: text({ group: general, value: "SCOPE", help: "Network scope; always swarm" }),
  "config-from": text({
    group: general,
    value: "NETWORK",
    help: "Engine network from which to copy the configuration",
  }),
  "config-only": yes({ group: general, help: "Refused: configuration-only networks exist on engines only" }),

  subnet: texts({
    group: addresses,
    value: "CIDR",
    help: "Subnet in CIDR format (default: from the cluster's address pool)",
  }),
  gateway: texts({ group: addresses, value: "IP", help: "Gateway of a subnet (default: its first address)" }),
  "ip-range": texts({ group: addresses, value: "CIDR", help: "Range of a subnet to allocate addresses from" }),
  "aux-address": texts({ group: addresses, value: "NAME=IP", help: "Address reserved from allocation" }),
  "ipam-driver": text({ group: addresses, value: "NAME", help: 'IP address management driver (default "default")' }),
  "ipam-opt": texts({ group: addresses, value: "KEY=VALUE", help: "IPAM driver option" }),
  ipv4: yes({ group: addresses, help: "Accepted for compatibility; always on" }),
  ipv6: yes({ group: addresses, help: "Allow IPv6 subnets; a task has one address" }),
} as const;

/** Docker's own default is `bridge`, which a cluster cannot allocate; here every network spans the cluster. */
const defaultDriver = "overlay";
const defaultIpamDriver = "default";

interface SubnetPlan {
  readonly text: string;
  readonly prefix: Prefix;
  range: string;
  gateway: string;
  readonly reserved: Record<string, string>;
}

/** Splits `a,b`, like Docker. */
function separated(values: readonly string[] | undefined): readonly string[] {
  return (values ?? []).flatMap((value) => value.split(",")).filter((value) => value !== "");
}

function address(text: string, flag: string): { family: 4 | 6; value: bigint } {
  const parsed = parseAddress(text);
  if (parsed === null)
    throw new UsageError(`invalid argument "${text}" for "--${flag}" flag: expected an address such as 10.1.0.1`);
  return parsed;
}

function prefix(text: string, flag: string): Prefix {
  const parsed = parseCidr(text);
  if (parsed === null)
    throw new UsageError(`invalid argument "${text}" for "--${flag}" flag: expected a range such as 10.1.0.0/16`);
  return parsed;
}

function plannedSubnets(values: readonly string[]): readonly SubnetPlan[] {
  const plans: SubnetPlan[] = [];
  for (const text of values) {
    const own = prefix(text, "subnet");
    const other = plans.find(({ prefix: known }) => containsRange(known, own) || containsRange(own, known));
    if (other !== undefined) throw new UsageError(`--subnet ${text} overlaps --subnet ${other.text}`);
    plans.push({ text, prefix: own, range: "", gateway: "", reserved: {} });
  }
  return plans;
}

/** The subnet that contains the flag's value. */
function home(
  plans: readonly SubnetPlan[],
  flag: string,
  text: string,
  holds: (subnet: Prefix) => boolean,
): SubnetPlan {
  const plan = plans.find(({ prefix: subnet }) => holds(subnet));
  if (plan === undefined) throw new UsageError(`no --subnet contains --${flag} ${text}`);
  return plan;
}

function ipamConfigs(flags: NetworkFlags): readonly IPAMConfig[] {
  const plans = plannedSubnets(separated(flags.subnet));
  for (const text of separated(flags["ip-range"])) {
    const range = prefix(text, "ip-range");
    const plan = home(plans, "ip-range", text, (subnet) => containsRange(subnet, range));
    if (plan.range !== "")
      throw new UsageError(`--subnet ${plan.text} has more than one --ip-range: ${plan.range} and ${text}`);
    plan.range = text;
  }
  for (const text of separated(flags.gateway)) {
    const at = address(text, "gateway");
    const plan = home(plans, "gateway", text, (subnet) => containsAddress(subnet, at));
    if (plan.gateway !== "")
      throw new UsageError(`--subnet ${plan.text} has more than one --gateway: ${plan.gateway} and ${text}`);
    plan.gateway = text;
  }
  for (const [name, text] of Object.entries(parsePairs(flags["aux-address"] ?? []))) {
    const at = address(text, "aux-address");
    home(plans, "aux-address", text, (subnet) => containsAddress(subnet, at)).reserved[name] = text;
  }
  return plans.map(({ text, range, gateway, reserved }) =>
    IPAMConfig.create({ subnet: text, range, gateway, reserved }),
  );
}

export type NetworkFlags = FlagValues<typeof networkFlags>;

/** Throws UsageError for contradictions; everything else is left for the cluster to validate. */
export function networkSpec(name: string, flags: NetworkFlags): NetworkSpec {
  if (flags.scope !== undefined && flags.scope !== "swarm")
    throw new UsageError(
      `invalid argument "${flags.scope}" for "--scope" flag: expected swarm (other networks belong to one engine)`,
    );
  if (flags["config-only"] === true)
    throw new UsageError("--config-only creates a network of one engine: use 'docker network create' there");
  if (flags.ipv4 === false)
    throw new UsageError("--ipv4=false is not supported: every cluster network has IPv4 addresses");
  return NetworkSpec.create({
    annotations: Annotations.create({ name, labels: parseLabels(flags.label ?? []) }),
    driverConfig: Driver.create({ name: flags.driver ?? defaultDriver, options: parsePairs(flags.opt ?? []) }),
    ipv6Enabled: flags.ipv6 ?? false,
    internal: flags.internal ?? false,
    attachable: flags.attachable ?? false,
    ingress: flags.ingress ?? false,
    ipam: IPAMOptions.create({
      driver: Driver.create({
        name: flags["ipam-driver"] ?? defaultIpamDriver,
        options: parsePairs(flags["ipam-opt"] ?? []),
      }),
      configs: ipamConfigs(flags),
    }),
    ...(flags["config-from"] === undefined ? {} : { network: flags["config-from"] }),
  });
}
