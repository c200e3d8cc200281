/** Networks, secrets and configs that a service's flags refer to. Names are resolved to ids before the spec is built. */
import {
  ConfigReference,
  ControlService,
  FileTarget,
  ListConfigsRequest,
  ListNetworksRequest,
  ListSecretsRequest,
  NetworkAttachmentConfig,
  RuntimeTarget,
  SecretReference,
  type Annotations,
} from "../../proto/gen/messages.ts";
import type { ManagerClient } from "../manager-client.ts";
import type { CreateValues, UpdateValues } from "./flags.ts";
import { UsageError, UserError } from "../../lib/user-error.ts";
import { csvFields } from "../values.ts";

const methods = ControlService.methods;

/** Lookup of ids by name; each throws UserError when not found. */
export interface Lookups {
  network(text: string): string;
  secret(name: string): string;
  config(name: string): string;
}

interface Named {
  readonly id: string;
  readonly spec: { readonly annotations: Annotations | null } | null;
}

function nameOf({ spec }: Named): string {
  return spec?.annotations?.name ?? "";
}

function byName(noun: string, objects: readonly Named[]): (name: string) => string {
  const ids = new Map(objects.map((object) => [nameOf(object), object.id]));
  return (name) => {
    const id = ids.get(name);
    if (id === undefined) throw new UserError(`${noun} not found: ${name}`);
    return id;
  };
}

/** By id, name or unique id prefix, in that order. */
function networkId(networks: readonly Named[]): (text: string) => string {
  return (text) => {
    const exact = networks.find(({ id }) => id === text) ?? networks.find((network) => nameOf(network) === text);
    if (exact !== undefined) return exact.id;
    const close = networks.filter(({ id }) => text !== "" && id.startsWith(text));
    if (close.length > 1) throw new UserError(`network ${text} is ambiguous (${close.length} matches found)`);
    if (close[0] === undefined) throw new UserError(`network ${text} not found`);
    return close[0].id;
  };
}

export const noLookups: Lookups = {
  network: networkId([]),
  secret: byName("secret", []),
  config: byName("config", []),
};

type Flags = Pick<CreateValues, "network" | "secret" | "config" | "credential-spec"> &
  Pick<UpdateValues, "network-add" | "network-rm" | "secret-add" | "config-add">;

/** Requests only the lists that the flags need. */
export async function lookupsFor(client: ManagerClient, flags: Flags): Promise<Lookups> {
  const areNetworksNamed = flags.network ?? flags["network-add"] ?? flags["network-rm"];
  const areConfigsNamed = flags.config ?? flags["config-add"] ?? flags["credential-spec"];
  const [networks, secrets, configs] = await Promise.all([
    areNetworksNamed === undefined ? null : client.call(methods.ListNetworks, ListNetworksRequest.create({})),
    (flags.secret ?? flags["secret-add"]) === undefined
      ? null
      : client.call(methods.ListSecrets, ListSecretsRequest.create({})),
    areConfigsNamed === undefined ? null : client.call(methods.ListConfigs, ListConfigsRequest.create({})),
  ]);
  return {
    network: networkId(networks?.networks ?? []),
    secret: byName("secret", secrets?.secrets ?? []),
    config: byName("config", configs?.configs ?? []),
  };
}

/** Parses `key=value` fields; null for a value without `=`, which is a name. */
function namedFields(value: string, flag: string): ReadonlyMap<string, readonly string[]> | null {
  const fields = csvFields(value, flag);
  if (fields.length === 1 && !value.includes("=")) return null;
  const found = new Map<string, string[]>();
  for (const field of fields) {
    const at = field.indexOf("=");
    if (at < 1) throw new UsageError(`--${flag}: invalid field "${field}": expected KEY=VALUE`);
    const key = field.slice(0, at).trim().toLowerCase();
    found.set(key, [...(found.get(key) ?? []), field.slice(at + 1).trim()]);
  }
  return found;
}

function refuseUnknown(fields: ReadonlyMap<string, unknown>, known: readonly string[], flag: string): void {
  for (const key of fields.keys()) {
    if (!known.includes(key)) throw new UsageError(`--${flag}: unknown field "${key}": expected ${known.join(", ")}`);
  }
}

function pair(text: string, flag: string): readonly [string, string] {
  const at = text.indexOf("=");
  if (at < 1) throw new UsageError(`--${flag}: invalid driver-opt "${text}": expected KEY=VALUE`);
  return [text.slice(0, at).trim(), text.slice(at + 1).trim()];
}

/** `NAME`, or `name=NAME,alias=a,driver-opt=key=value`. */
export function parseNetwork(value: string, lookups: Lookups, flag = "network"): NetworkAttachmentConfig {
  const fields = namedFields(value, flag);
  if (fields === null) return NetworkAttachmentConfig.create({ target: lookups.network(value) });
  refuseUnknown(fields, ["name", "alias", "driver-opt"], flag);
  const name = fields.get("name")?.at(-1) ?? "";
  if (name === "") throw new UsageError(`--${flag}: name=NETWORK is required`);
  return NetworkAttachmentConfig.create({
    target: lookups.network(name),
    aliases: fields.get("alias") ?? [],
    driverAttachmentOpts: Object.fromEntries((fields.get("driver-opt") ?? []).map((text) => pair(text, flag))),
  });
}

/** Sorted by id like Docker's client does, so that the same set yields the same spec. */
export function sortedNetworks(networks: readonly NetworkAttachmentConfig[]): readonly NetworkAttachmentConfig[] {
  return networks.toSorted((a, b) => (a.target < b.target ? -1 : 1));
}

/** Rejects adding a network twice, or one that the service already has. */
export function networksAfter(
  before: readonly NetworkAttachmentConfig[],
  added: readonly string[],
  removed: readonly string[],
  lookups: Lookups,
): readonly NetworkAttachmentConfig[] {
  const gone = new Set(removed.map((text) => lookups.network(text)));
  const networks = before.filter(({ target }) => !gone.has(target));
  for (const text of added) {
    const network = parseNetwork(text, lookups, "network-add");
    if (networks.some(({ target }) => target === network.target)) {
      throw new UserError(`the service is already attached to network ${text}`);
    }
    networks.push(network);
  }
  return sortedNetworks(networks);
}

/** Docker's default: readable by everyone in the container. */
const fileModeDefault = 0o444;

/** Parses a number like Go: `0440` and `0o440` are octal, `0x120` is hexadecimal, `288` is decimal. */
function fileMode(text: string, flag: string): number {
  if (/^0o?[0-7]+$/.test(text)) return Number.parseInt(text.replace("o", ""), 8);
  if (!/^(?:0x[0-9a-f]+|0b[01]+|[1-9]\d*|0)$/i.test(text)) {
    throw new UsageError(`invalid argument "${text}" for "--${flag}" flag: expected a mode such as 0440`);
  }
  return Number(text);
}

interface FileRequest {
  readonly name: string;
  readonly file: FileTarget;
}

/** `NAME`, or `source=NAME,target=FILE,uid=0,gid=0,mode=0440`. */
function fileRequest(value: string, flag: string): FileRequest {
  const fields = namedFields(value, flag);
  if (fields !== null) refuseUnknown(fields, ["source", "src", "target", "uid", "gid", "mode"], flag);
  const field = (key: string): string | undefined => fields?.get(key)?.at(-1);
  const name = fields === null ? value : (field("source") ?? field("src") ?? "");
  if (name === "") throw new UsageError(`--${flag}: source=NAME is required`);
  const mode = field("mode");
  return {
    name,
    file: FileTarget.create({
      name: field("target") || name,
      uid: field("uid") ?? "0",
      gid: field("gid") ?? "0",
      mode: mode === undefined ? fileModeDefault : fileMode(mode, flag),
    }),
  };
}

/** Rejects two references with the same target file. */
function fileRequests(noun: string, values: readonly string[], flag: string): readonly FileRequest[] {
  const requests = values.map((value) => fileRequest(value, flag));
  const taken = new Set<string>();
  for (const { name, file } of requests) {
    if (taken.has(file.name)) throw new UserError(`duplicate ${noun} target for ${name} not allowed`);
    taken.add(file.name);
  }
  return requests;
}

export function secretReferences(values: readonly string[], lookups: Lookups, flag = "secret"): SecretReference[] {
  return fileRequests("secret", values, flag).map(({ name, file }) =>
    SecretReference.create({ secretId: lookups.secret(name), secretName: name, file }),
  );
}

export function configReferences(values: readonly string[], lookups: Lookups, flag = "config"): ConfigReference[] {
  return fileRequests("config", values, flag).map(({ name, file }) =>
    ConfigReference.create({ configId: lookups.config(name), configName: name, file }),
  );
}

/** A config for the container's runtime only. */
export function runtimeReference(name: string, lookups: Lookups): ConfigReference {
  return ConfigReference.create({
    configId: lookups.config(name),
    configName: name,
    runtime: RuntimeTarget.create({}),
  });
}
