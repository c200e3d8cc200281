/** Checks a service's references to secrets, configs and networks, and that these objects exist. */
import {
  ExecSpec,
  ResourceType,
  type ConfigReference,
  type ContainerSpec,
  type FileTarget,
  type SecretReference,
  type ServiceSpec,
  type TaskSpec,
} from "../../proto/gen/messages.ts";
import { driverRuntimeOf } from "../driver/spec.ts";
import { invalid, type Refusal } from "../refusal.ts";
import { isSameMessage } from "../same-message.ts";

interface Reference {
  readonly id: string;
  readonly name: string;
  readonly file: FileTarget | null;
  /** True when it needs no file because the runtime itself reads it. */
  readonly runtime: boolean;
}

/** The fields that containers and processes have in common. */
interface Files {
  readonly secrets: readonly SecretReference[];
  readonly configs: readonly ConfigReference[];
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

export function checkSecretReferences(files: Pick<Files, "secrets"> | null): Refusal | null {
  return checkReferences(
    "secret",
    (files?.secrets ?? []).map(({ secretId, secretName, file }) => ({
      id: secretId,
      name: secretName,
      file,
      runtime: false,
    })),
  );
}

/**
 * Checks a process's files like a container's, and that each is also in the task's resource references, which deliver it
 * to the node.
 */
export function checkProcessFiles(spec: Files, task: TaskSpec): Refusal | null {
  const runtime = spec.configs.find((config) => config.runtime !== null);
  if (runtime !== undefined)
    return invalid(`config '${runtime.configName}' has no file target: processes can read configs only from files`);
  const sent = new Set(task.resourceReferences.map(({ resourceId, resourceType }) => `${resourceType}/${resourceId}`));
  const unsent =
    spec.secrets.find(({ secretId }) => !sent.has(`${ResourceType.SECRET}/${secretId}`))?.secretName ??
    spec.configs.find(({ configId }) => !sent.has(`${ResourceType.CONFIG}/${configId}`))?.configName;
  return (
    checkSecretReferences(spec) ??
    checkReferences("config", spec.configs.map(asReference)) ??
    (unsent === undefined ? null : invalid(`'${unsent}' is missing from the task's resource references; add it there`))
  );
}

export function checkConfigReferences(container: ContainerSpec | null): Refusal | null {
  const configs = container?.configs ?? [];
  const refusal = checkReferences("config", configs.map(asReference));
  if (refusal !== null) return refusal;
  const credential = container?.privileges?.credentialSpec?.config ?? null;
  if (credential !== null && !configs.some(({ configId, runtime }) => configId === credential && runtime !== null)) {
    return invalid(
      `CredentialSpec references config '${credential}', but that config isn't in config references with RuntimeTarget`,
    );
  }
  return null;
}

function asReference({ configId, configName, file, runtime }: ConfigReference): Reference {
  return { id: configId, name: configName, file, runtime: runtime !== null };
}

/** Name of the secret or config with that id; undefined if it does not exist. */
type NameOf = (id: string) => string | undefined;

function missing(noun: string, references: NamedReferences["secrets"], nameOf: NameOf): Refusal | null {
  const isThere = (id: string, name: string | null): boolean => {
    const stored = nameOf(id);
    return stored !== undefined && (name === null || stored === name);
  };
  const names = references.filter(({ id, name }) => !isThere(id, name)).map(({ id, name }) => name ?? id);
  if (names.length === 0) return null;
  return invalid(`${noun}${names.length > 1 ? "s" : ""} not found: ${names.join(", ")}`);
}

/** The last check before a service is written: all secrets and configs must exist under the given ids and names. */
export function checkReferencesExist(spec: ServiceSpec, secretName: NameOf, configName: NameOf): Refusal | null {
  const { configs, secrets } = filesOf(spec.task);
  return missing("secret", secrets, secretName) ?? missing("config", configs, configName);
}

interface NamedReferences {
  readonly secrets: readonly { readonly id: string; readonly name: string | null }[];
  readonly configs: readonly { readonly id: string; readonly name: string | null }[];
}

/** `name` is null for resource references, which contain only an id. */
function filesOf(task: TaskSpec | null): NamedReferences {
  const files = task?.container ?? processFiles(task);
  const secrets = (files?.secrets ?? []).map(({ secretId: id, secretName: name }) => ({ id, name }));
  const configs = (files?.configs ?? []).map(({ configId: id, configName: name }) => ({ id, name }));
  const others = (type: ResourceType, named: readonly { readonly id: string }[]) =>
    (task?.resourceReferences ?? [])
      .filter(({ resourceId, resourceType }) => resourceType === type && !named.some(({ id }) => id === resourceId))
      .map(({ resourceId: id }) => ({ id, name: null }));
  return {
    secrets: [...secrets, ...others(ResourceType.SECRET, secrets)],
    configs: [...configs, ...others(ResourceType.CONFIG, configs)],
  };
}

function processFiles(task: TaskSpec | null): Files | null {
  const runtime = driverRuntimeOf(task);
  if (runtime !== null) return runtime.spec;
  const payload = task?.generic?.kind === "exec" ? task.generic.payload : null;
  if (payload === null) return null;
  try {
    return ExecSpec.decode(payload.value);
  } catch {
    return null; // checkRuntime refuses it
  }
}

/** Whether two specs reference the same secrets and configs. May return false for equal ones where comparing is expensive. */
export function mentionsSame(spec: ServiceSpec, old: ServiceSpec): boolean {
  const [task, oldTask] = [spec.task, old.task];
  return (
    isSameMessage(task?.container?.secrets ?? [], oldTask?.container?.secrets ?? []) &&
    isSameMessage(task?.container?.configs ?? [], oldTask?.container?.configs ?? []) &&
    isSameMessage(task?.resourceReferences ?? [], oldTask?.resourceReferences ?? []) &&
    isSameMessage(task?.generic ?? null, oldTask?.generic ?? null)
  );
}

/** Whether the object is sent to the service's tasks, for any runtime. */
export function mentions(task: TaskSpec | null, noun: "secret" | "config", id: string): boolean {
  if (task === null) return false;
  const type = noun === "secret" ? ResourceType.SECRET : ResourceType.CONFIG;
  return (
    task.resourceReferences.some(({ resourceId, resourceType }) => resourceType === type && resourceId === id) ||
    (noun === "secret"
      ? task.container?.secrets.some(({ secretId }) => secretId === id) === true
      : task.container?.configs.some(({ configId }) => configId === id) === true)
  );
}

/** A service on a missing network would silently run without it. The message is Docker's. */
export function checkNetworksExist(spec: ServiceSpec, exists: (target: string) => boolean): Refusal | null {
  const networks = [...(spec.task?.networks ?? []), ...spec.networks];
  const missingTarget = networks.find(({ target }) => !exists(target))?.target;
  return missingTarget === undefined ? null : invalid(`network ${missingTarget} not found`);
}
