/** Secrets, configs and networks that a service mentions: the references themselves, and whether their objects exist. */
import type { ConfigReference, ContainerSpec, FileTarget, ServiceSpec } from "../../proto/gen/messages.ts";
import { invalid, type Refusal } from "../refusal.ts";

interface Reference {
  readonly id: string;
  readonly name: string;
  readonly file: FileTarget | null;
  /** True when it may do without a file: what it is for is read by the runtime itself. */
  readonly runtime: boolean;
}

function checkReferences(noun: "secret" | "config", references: readonly Reference[]): Refusal | null {
  const byFile = new Map<string, Reference>();
  for (const reference of references) {
    if (reference.id === "" || reference.name === "") return invalid(`malformed ${noun} reference`);
    if (reference.file === null) {
      if (reference.runtime) continue;
      return invalid(`malformed ${noun} reference, no target provided`);
    }
    const file = reference.file.name;
    if (file === "") return invalid(`malformed file ${noun} reference, invalid target file name provided`);
    const other = byFile.get(file);
    if (other !== undefined) {
      return invalid(`${noun} references '${other.name}' and '${reference.name}' have a conflicting target: '${file}'`);
    }
    byFile.set(file, reference);
  }
  return null;
}

export function checkSecretReferences(container: ContainerSpec | null): Refusal | null {
  return checkReferences(
    "secret",
    (container?.secrets ?? []).map(({ secretId, secretName, file }) => ({
      id: secretId,
      name: secretName,
      file,
      runtime: false,
    })),
  );
}

export function checkConfigReferences(container: ContainerSpec | null): Refusal | null {
  const configs = container?.configs ?? [];
  const refusal = checkReferences("config", configs.map(asReference));
  if (refusal !== null) return refusal;
  const credential = container?.privileges?.credentialSpec?.config ?? null;
  if (credential !== null && !configs.some(({ configId, runtime }) => configId === credential && runtime !== null)) {
    return invalid(
      `CredentialSpec references config '${credential}', which is not in the container's configs with a runtime target`,
    );
  }
  return null;
}

function asReference({ configId, configName, file, runtime }: ConfigReference): Reference {
  return { id: configId, name: configName, file, runtime: runtime !== null };
}

/** Name of the secret or config with that id; undefined when there is none. */
export type NameOf = (id: string) => string | undefined;

function missing(noun: string, references: readonly { id: string; name: string }[], nameOf: NameOf): Refusal | null {
  const names = references.filter(({ id, name }) => nameOf(id) !== name).map(({ name }) => name);
  if (names.length === 0) return null;
  return invalid(`${noun}${names.length > 1 ? "s" : ""} not found: ${names.join(", ")}`);
}

/** The last look before a service is written: everything that it mentions must exist under the id and name given. */
export function checkReferencesExist(spec: ServiceSpec, secretName: NameOf, configName: NameOf): Refusal | null {
  const container = spec.task?.container;
  const secrets = (container?.secrets ?? []).map(({ secretId, secretName: name }) => ({ id: secretId, name }));
  const configs = (container?.configs ?? []).map(({ configId, configName: name }) => ({ id: configId, name }));
  return missing("secret", secrets, secretName) ?? missing("config", configs, configName);
}

/** A service on a network that is not there would run without it, which nobody would notice: Docker's words. */
export function checkNetworksExist(spec: ServiceSpec, exists: (target: string) => boolean): Refusal | null {
  const networks = [...(spec.task?.networks ?? []), ...spec.networks];
  const missingTarget = networks.find(({ target }) => !exists(target))?.target;
  return missingTarget === undefined ? null : invalid(`network ${missingTarget} not found`);
}
