/**
 * A task's files with their content: combines the references in its spec with what the manager has sent. All errors are found
 * here, before anything is written.
 */
import { isAbsolute, normalize } from "node:path";
import type { Content, DriverTask } from "../../actors/agent/ports.ts";
import type { DriverSpec, FileTarget } from "../../proto/gen/messages.ts";
import { payloadContext, type TemplateContext } from "../../lib/template/task-context.ts";
import { expand } from "../../lib/template/expand.ts";

export interface TaskFile {
  readonly kind: "secrets" | "configs";
  /** Relative, without `..`. */
  readonly path: string;
  readonly data: Uint8Array;
  readonly uid: number;
  readonly gid: number;
  /** Permission bits. */
  readonly mode: number;
}

type FilesOutcome =
  | { readonly kind: "files"; readonly files: readonly TaskFile[] }
  | { readonly kind: "refused"; readonly reason: string };

/** The only template language of payloads. */
const templating = "golang";
/** SwarmKit's limit for an expanded template: that of a config, in bytes. The result is kept in memory. */
const expandedBytesMax = 1_024_000;
const permissions = 0o777;

type References = Pick<DriverSpec, "secrets" | "configs">;

interface Reference {
  readonly kind: "secrets" | "configs";
  readonly noun: "secret" | "config";
  readonly id: string;
  readonly name: string;
  readonly file: FileTarget;
}

type Sources = Pick<DriverTask, "secrets" | "configs">;

class Refusal extends Error {}

/** `env`: the task's own variables, expanded. A reason never contains content. */
export function filesOf(task: DriverTask, spec: References, env: Readonly<Record<string, string>>): FilesOutcome {
  const references = referencesOf(spec);
  const raw = (noun: Reference["noun"]) => (target: string) => {
    const reference = references.find((each) => each.noun === noun && each.file.name === target);
    if (reference === undefined) return null;
    // As in SwarmKit, content inserted by a template is not expanded itself, so there are no cycles.
    return textOf(contentOf(task, reference).data, reference);
  };
  const context = payloadContext(task, { env, secret: raw("secret"), config: raw("config") });
  try {
    return { kind: "files", files: references.map((reference) => fileOf(task, reference, context)) };
  } catch (error) {
    if (error instanceof Refusal) return { kind: "refused", reason: error.message };
    throw error;
  }
}

function referencesOf(spec: References): readonly Reference[] {
  const found: Reference[] = [];
  for (const { file, secretId: id, secretName: name } of spec.secrets)
    if (file !== null) found.push({ kind: "secrets", noun: "secret", id, name, file });
  for (const { configId: id, configName: name, file } of spec.configs)
    if (file !== null) found.push({ kind: "configs", noun: "config", id, name, file });
  return found;
}

function fileOf(sources: Sources, reference: Reference, context: TemplateContext): TaskFile {
  const { file, kind, name, noun } = reference;
  const path = pathOf(file.name);
  if (path === null) throw new Refusal(`invalid file name '${file.name}' of the ${noun} ${name}`);
  const mode = file.mode & permissions;
  const [uid, gid] = [numberOf(file.uid), numberOf(file.gid)];
  if (uid === null || gid === null) {
    throw new Refusal(`invalid owner '${file.uid}:${file.gid}' of the ${noun} ${name}: expected two numbers`);
  }
  const content = contentOf(sources, reference);
  return { kind, path, mode, uid, gid, data: expanded(content, reference, context) };
}

/** An absolute name keeps its path below the directory: the node decides where the task's files are. */
function pathOf(name: string): string | null {
  const path = normalize(isAbsolute(name) ? name.slice(1) : name);
  const isInside = path !== "." && path !== "" && !path.split("/").includes("..") && !path.endsWith("/");
  return isInside && !isAbsolute(path) && !path.includes("\0") ? path : null;
}

/** Docker's client writes `0` for an unspecified owner; other clients leave it empty. */
function numberOf(text: string): number | null {
  if (text === "") return 0;
  return /^\d{1,9}$/.test(text) ? Number(text) : null;
}

function contentOf(sources: Sources, { id, kind, name, noun }: Reference): Content {
  const content = sources[kind].get(id);
  if (content === undefined) throw new Refusal(`the ${noun} ${name} was not sent to this node`);
  return content;
}

/** A payload must be text to be a template or part of one. */
function textOf(data: Uint8Array, { name, noun }: Reference): string {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(data);
  } catch {
    throw new Refusal(`the content of the ${noun} ${name} is not UTF-8 text, which templates require`);
  }
}

function expanded({ data, template }: Content, reference: Reference, context: TemplateContext): Uint8Array {
  const { name, noun } = reference;
  if (template === null) return data;
  if (template !== templating) {
    throw new Refusal(
      `the ${noun} ${name} uses the template driver '${template}', but this node supports only ${templating}`,
    );
  }
  const expansion = expand(textOf(data, reference), context);
  if (expansion.kind === "failed") {
    throw new Refusal(`the template of the ${noun} ${name} cannot be expanded: ${expansion.reason}`);
  }
  const bytes = new TextEncoder().encode(expansion.text);
  if (bytes.length <= expandedBytesMax) return bytes;
  throw new Refusal(`the expanded template of the ${noun} ${name} exceeds ${expandedBytesMax} bytes`);
}
