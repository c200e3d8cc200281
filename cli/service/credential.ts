/** `--credential-spec` and the configs of a service: a config that holds a credential spec must be listed with the others. */
import {
  Privileges,
  Privileges_CredentialSpec,
  type ConfigReference,
  type ContainerSpec,
} from "../../proto/gen/messages.ts";
import { UsageError } from "../../lib/user-error.ts";
import type { CreateValues, UpdateValues } from "./flags.ts";
import { configReferences, runtimeReference, type Lookups } from "./references.ts";

type Source =
  | { readonly kind: "none" }
  | { readonly kind: "file" | "registry"; readonly value: string }
  | { readonly kind: "config"; readonly name: string };

/** An empty value removes the credential spec. */
function parseSource(text: string): Source {
  if (text === "") return { kind: "none" };
  const match = /^(config|file|registry):\/\/(.*)$/s.exec(text);
  if (match === null) {
    throw new UsageError(
      `invalid argument "${text}" for "--credential-spec" flag: expected config://NAME, file://PATH or registry://KEY`,
    );
  }
  const [, kind, value = ""] = match;
  return kind === "config" ? { kind, name: value } : { kind: kind as "file" | "registry", value };
}

function credentialSpec(source: Source, lookups: Lookups): Privileges_CredentialSpec | null {
  switch (source.kind) {
    case "none":
      return null;
    case "config":
      return Privileges_CredentialSpec.create({ config: lookups.config(source.name) });
    case "file":
      return Privileges_CredentialSpec.create({ file: source.value });
    case "registry":
      return Privileges_CredentialSpec.create({ registry: source.value });
  }
}

export function newCredential(flags: CreateValues, lookups: Lookups): Pick<ContainerSpec, "privileges" | "configs"> {
  const source = parseSource(flags["credential-spec"] ?? "");
  const spec = credentialSpec(source, lookups);
  return {
    privileges: spec === null ? null : Privileges.create({ credentialSpec: spec }),
    configs: [
      ...configReferences(flags.config ?? [], lookups),
      ...(source.kind === "config" ? [runtimeReference(source.name, lookups)] : []),
    ],
  };
}

/** Configs are removed by name; the credential spec's config is removed only together with it. */
export function credentialAfter(
  before: ContainerSpec,
  flags: UpdateValues,
  lookups: Lookups,
): Pick<ContainerSpec, "privileges" | "configs"> {
  const text = flags["credential-spec"];
  const source = text === undefined ? null : parseSource(text);
  const heldId = before.privileges?.credentialSpec?.config ?? "";
  const isKept = ({ configId, configName, runtime }: ConfigReference): boolean => {
    if (runtime === null) return !(flags["config-rm"] ?? []).includes(configName);
    if (source === null) return configId === heldId;
    return source.kind === "config" && source.name === configName;
  };
  const kept = before.configs.filter(isKept);
  const isHeld = kept.some(
    ({ runtime, configName }) => runtime !== null && source?.kind === "config" && configName === source.name,
  );
  const privileges = before.privileges;
  return {
    configs: [
      ...kept,
      ...configReferences(flags["config-add"] ?? [], lookups, "config-add"),
      ...(source?.kind === "config" && !isHeld ? [runtimeReference(source.name, lookups)] : []),
    ],
    privileges:
      source === null || (source.kind === "none" && privileges === null)
        ? privileges
        : Privileges.patch(privileges ?? Privileges.create({}), { credentialSpec: credentialSpec(source, lookups) }),
  };
}
