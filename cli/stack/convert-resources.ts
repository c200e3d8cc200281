/** Converts networks, secrets and configs of a Compose file to specs. */
import { readFileSync } from "node:fs";
import {
  Annotations,
  ConfigSpec,
  Driver,
  IPAMConfig,
  IPAMOptions,
  NetworkSpec,
  SecretSpec,
} from "../../proto/gen/messages.ts";
import { UserError } from "../../lib/user-error.ts";
import { clusterName } from "./convert-files.ts";
import { networkKeys, networkName } from "./convert-service.ts";
import type { Variables } from "./interpolate.ts";
import { placeText } from "./located.ts";
import { withStackLabel } from "./names.ts";
import type { View } from "./view.ts";

/** The driver that spans a cluster; Docker's other drivers are local to an engine. */
const networkDriverDefault = "overlay";

export interface StackNetworks {
  /** By name; created when missing. */
  readonly own: ReadonlyMap<string, NetworkSpec>;
  /** Names that must exist already. */
  readonly external: readonly string[];
}

function networkSpecOf(name: string, view: View, stack: string): NetworkSpec {
  const ipam = view.child("ipam");
  const configs = ipam.items("config").map((config) =>
    IPAMConfig.create({
      subnet: config.text("subnet"),
      range: config.text("ip_range"),
      gateway: config.text("gateway"),
      reserved: config.pairs("aux_addresses"),
    }),
  );
  const isIpamSaid = ipam.has("driver") || configs.length > 0 || ipam.has("options");
  return NetworkSpec.create({
    annotations: Annotations.create({ name, labels: withStackLabel(stack, view.pairs("labels")) }),
    driverConfig: Driver.create({
      name: view.text("driver") || networkDriverDefault,
      options: view.pairs("driver_opts"),
    }),
    ipv6Enabled: view.boolean("enable_ipv6") ?? false,
    internal: view.boolean("internal") ?? false,
    attachable: view.boolean("attachable") ?? false,
    ipam: isIpamSaid
      ? IPAMOptions.create({
          driver: Driver.create({ name: ipam.text("driver") || "default", options: ipam.pairs("options") }),
          configs,
        })
      : null,
  });
}

function usedNetworks(project: View): readonly string[] {
  const used = new Set([...project.children("services").values()].flatMap((service) => networkKeys(service)));
  return [...used].toSorted();
}

/** Only networks that services use, like Docker, unless others are named. */
export function networksOf(project: View, stack: string, keys = usedNetworks(project)): StackNetworks {
  const own = new Map<string, NetworkSpec>();
  const external: string[] = [];
  for (const key of keys) {
    const view = project.child("networks").child(key);
    const name = networkName(project, key, stack);
    // An undefined network is reported at the service that refers to it.
    if (name === null) continue;
    if (view.boolean("external") === true) external.push(name);
    else own.set(name, networkSpecOf(name, view, stack));
  }
  return { own, external };
}

function fileData(view: View): Uint8Array {
  const path = view.text("file");
  try {
    return Uint8Array.from(readFileSync(path));
  } catch (error) {
    throw new UserError(`${placeText(view.at)}: cannot read the file ${path} of ${view.path}`, { cause: error });
  }
}

function dataOf(view: View, variables: Variables): Uint8Array {
  const sources = ["file", "environment", "content"].filter((key) => view.has(key));
  if (sources.length !== 1) {
    throw view.mistake(
      "",
      sources.length === 0
        ? "has no content: set file, environment or content"
        : `has more than one source: ${sources.join(" and ")}`,
    );
  }
  if (sources[0] === "file") return fileData(view);
  if (sources[0] === "content") return Buffer.from(view.text("content"), "utf8");
  const value = variables.get(view.text("environment"));
  if (value === undefined)
    throw view.mistake("environment", `refers to the variable ${view.text("environment")}, which is not set`);
  return Buffer.from(value, "utf8");
}

function templating(view: View): Driver | null {
  return view.has("template_driver") ? Driver.create({ name: view.text("template_driver") }) : null;
}

function owned(project: View, kind: "secrets" | "configs", stack: string): readonly (readonly [string, View])[] {
  return [...project.children(kind)]
    .filter(([, view]) => view.boolean("external") !== true)
    .map(([key, view]) => [clusterName(project, kind, key, stack) ?? key, view] as const)
    .toSorted(([a], [b]) => (a < b ? -1 : 1));
}

export function secretsOf(project: View, stack: string, variables: Variables): readonly SecretSpec[] {
  return owned(project, "secrets", stack).map(([name, view]) => {
    const annotations = Annotations.create({ name, labels: withStackLabel(stack, view.pairs("labels")) });
    if (view.has("driver")) {
      const driver = Driver.create({ name: view.text("driver"), options: view.pairs("driver_opts") });
      return SecretSpec.create({ annotations, driver, templating: templating(view) });
    }
    return SecretSpec.create({ annotations, data: dataOf(view, variables), templating: templating(view) });
  });
}

export function configsOf(project: View, stack: string, variables: Variables): readonly ConfigSpec[] {
  return owned(project, "configs", stack).map(([name, view]) => {
    const annotations = Annotations.create({ name, labels: withStackLabel(stack, view.pairs("labels")) });
    return ConfigSpec.create({ annotations, data: dataOf(view, variables), templating: templating(view) });
  });
}
