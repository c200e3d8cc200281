/**
 * Loads a Compose project: the files in order, each interpolated, checked, with short forms expanded, and with `include` and
 * `extends` resolved; then merged into one tree.
 *
 *   text ─▶ tree ─▶ interpolated ─▶ checked ─▶ long forms ─▶ extended ─▶ merged with the file before ─▶ joined with includes
 */
import { readFileSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { UserError } from "../../lib/user-error.ts";
import { checkDependencies } from "./dependencies.ts";
import { parseEnvFile } from "./env-file.ts";
import { interpolatedTree, type Variables } from "./interpolate.ts";
import {
  child,
  list,
  mapping,
  mistake,
  placeText,
  scalar,
  textOf,
  under,
  withEntries,
  withValues,
  type Entry,
  type MappingNode,
  type Node,
  type Place,
} from "./located.ts";
import { mergedService, mergedTrees, withoutReset } from "./merge.ts";
import { absolutePath } from "./paths.ts";
import { composeFile } from "./schema.ts";
import { check } from "./shape.ts";
import { withLongForms } from "./short-forms.ts";
import { parseYaml } from "./yaml.ts";

/** Maximum nesting of includes, which also detects cycles. */
const includeDepthMax = 32;

interface ProjectFiles {
  /** In order, at least one; `-` is standard input. */
  readonly files: readonly string[];
  /** Variable files instead of the project's `.env`. */
  readonly envFiles?: readonly string[];
  readonly environment: Readonly<Record<string, string | undefined>>;
  /** Leaves variables uninterpolated. */
  readonly isInterpolationSkipped?: boolean;
  /** Reports suspicious settings that are not errors, one line each. */
  warn(text: string): void;
}

export interface Project {
  /** In long form, with environment files loaded. */
  readonly tree: MappingNode;
  readonly variables: Variables;
}

interface Loading extends ProjectFiles {
  readonly folder: string;
  readonly variables: Variables;
  readonly depth: number;
}

function readText(path: string, what: string, at?: Place): string {
  try {
    return readFileSync(path === "-" ? 0 : path, "utf8");
  } catch (error) {
    const { code = "", message } = error as NodeJS.ErrnoException;
    const why = code === "ENOENT" ? "no such file or directory" : code === "EISDIR" ? "is a directory" : message;
    const place = at === undefined ? "" : `${placeText(at)}: `;
    throw new UserError(`${place}cannot read ${what} ${path}: ${why}`, { cause: error });
  }
}

function exists(path: string): boolean {
  try {
    readFileSync(path);
    return true;
  } catch {
    return false;
  }
}

/** The environment overrides files; later files override earlier ones. */
function variablesFor(files: ProjectFiles, envFiles: readonly string[], outer: Variables | null): Variables {
  const missing = new Set<string>();
  const base: Variables = outer ?? { get: (name) => files.environment[name] };
  const found = new Map<string, string>();
  for (const file of envFiles) {
    const scope: Variables = { get: (name) => base.get(name) ?? found.get(name) };
    for (const [name, value] of parseEnvFile(readText(file, "the environment file"), file, scope)) {
      if (value !== null) found.set(name, value);
    }
  }
  return {
    get: (name) => base.get(name) ?? found.get(name),
    missing(name) {
      if (missing.has(name)) return;
      missing.add(name);
      files.warn(`The "${name}" variable is not set. Defaulting to a blank string.`);
    },
  };
}

function section(tree: MappingNode, name: string): MappingNode | null {
  const found = child(tree, name);
  return found?.kind === "mapping" ? found : null;
}

function treeOf(text: string, file: string, loading: Loading): MappingNode {
  const raw = parseYaml(text, file);
  const filled = loading.isInterpolationSkipped === true ? raw : interpolatedTree(raw, loading.variables);
  check(filled, composeFile, "");
  return withLongForms(filled as MappingNode, loading.folder);
}

interface Extension {
  readonly service: string;
  /** Null: the same file. */
  readonly file: string | null;
}

function extensionOf(service: Node): Extension | null {
  const given = child(service, "extends");
  if (given === undefined || given.tag === "reset") return null;
  if (given.kind === "scalar") return { service: textOf(given), file: null };
  const file = child(given, "file");
  return {
    service: textOf(child(given, "service") ?? scalar("", given.at)),
    file: file === undefined ? null : textOf(file),
  };
}

/** The service merged over the one that it extends. */
function extended(name: string, tree: MappingNode, loading: Loading, seen: readonly string[]): MappingNode {
  const services = section(tree, "services");
  const service = child(services ?? undefined, name);
  if (service?.kind !== "mapping") throw new UserError(`cannot extend service "${name}": not found`);
  const extension = extensionOf(service);
  if (extension === null) return service;
  const at = child(service, "extends")?.at ?? service.at;
  const path = under(under("services", name), "extends");
  const step = `${at.file}#${name}`;
  if (seen.includes(step)) throw mistake(at, path, "is a cycle");
  const file = extension.file === null ? null : absolutePath(extension.file, loading.folder);
  const folder = file === null ? loading.folder : dirname(file);
  const inside = { ...loading, folder };
  const base = file === null ? tree : treeOf(readText(file, "the file", at), file, inside);
  if (child(section(base, "services") ?? undefined, extension.service)?.kind !== "mapping") {
    throw mistake(at, path, `refers to the service '${extension.service}', which does not exist`);
  }
  const beneath = extended(extension.service, base, inside, [...seen, step]);
  return mergedService(beneath, withValues(service, { extends: undefined }), name);
}

function withExtensions(tree: MappingNode, loading: Loading): MappingNode {
  const services = section(tree, "services");
  if (services === null) return tree;
  const pairs = [...services.entries].map(([name, { at, value }]) => {
    const isPlain = value.kind !== "mapping" || extensionOf(value) === null;
    return [name, { at, value: isPlain ? value : extended(name, tree, loading, []) }] as const;
  });
  return withValues(tree, { services: withEntries(services, new Map<string, Entry>(pairs)) });
}

/** Included files add to the project; they must not redefine anything. */
function joined(tree: MappingNode, included: MappingNode, at: Place): MappingNode {
  const values: Record<string, Node> = {};
  for (const name of ["services", "networks", "volumes", "secrets", "configs"]) {
    const more = section(included, name);
    if (more === null) continue;
    const own = section(tree, name) ?? mapping([], at);
    for (const key of more.entries.keys()) {
      if (own.entries.has(key)) throw mistake(at, "include", `conflicts with the existing ${under(name, key)}`);
    }
    values[name] = withEntries(own, new Map([...own.entries, ...more.entries]));
  }
  return withValues(tree, values);
}

function texts(node: Node | undefined): readonly string[] {
  if (node === undefined) return [];
  return node.kind === "list" ? node.items.map(textOf) : [textOf(node)];
}

function withIncludes(tree: MappingNode, loading: Loading): MappingNode {
  const includes = child(tree, "include") ?? list([], tree.at);
  if (includes.kind !== "list") return tree;
  let whole = withValues(tree, { include: undefined });
  for (const item of includes.items) {
    if (loading.depth >= includeDepthMax) throw mistake(item.at, "include", "is a cycle");
    const paths = texts(item.kind === "scalar" ? item : child(item, "path")).map((path) =>
      absolutePath(path, loading.folder),
    );
    const [first] = paths;
    if (first === undefined) throw mistake(item.at, "include", "has no file");
    const given = child(item, "project_directory");
    const folder = given === undefined ? dirname(first) : absolutePath(textOf(given), loading.folder);
    const named = texts(child(item, "env_file")).map((path) => absolutePath(path, loading.folder));
    const usual = resolve(folder, ".env");
    const envFiles = named.length > 0 ? named : exists(usual) ? [usual] : [];
    const variables = variablesFor(loading, envFiles, loading.variables);
    for (const path of paths) readText(path, "the included file", item.at);
    const inside = { ...loading, files: paths, folder, variables, depth: loading.depth + 1 };
    whole = joined(whole, loadFiles(inside), item.at);
  }
  return whole;
}

function loadFiles(loading: Loading): MappingNode {
  let whole: MappingNode | null = null;
  for (const file of loading.files) {
    const tree = withExtensions(treeOf(readText(file, "the Compose file"), file, loading), loading);
    whole = whole === null ? tree : mergedTrees(whole, tree);
  }
  if (whole === null) throw new UserError("no Compose file: set --compose-file");
  return withIncludes(withoutReset(whole), loading);
}

/** Adds variables of `env_file` and labels of `label_file` where the service does not set them itself. */
function withFiles(tree: MappingNode, variables: Variables): MappingNode {
  const services = section(tree, "services");
  if (services === null) return tree;
  const entries = new Map<string, Entry>();
  for (const [name, { at, value }] of services.entries) {
    entries.set(name, { at, value: value.kind === "mapping" ? filled(value, variables) : value });
  }
  return withValues(tree, { services: withEntries(services, entries) });
}

function filled(service: MappingNode, variables: Variables): MappingNode {
  const environment = new Map<string, Node>();
  const files = child(service, "env_file");
  for (const item of files?.kind === "list" ? files.items : []) {
    const path = textOf(child(item, "path") ?? item);
    const isRequired = !/^false$/i.test(textOf(child(item, "required") ?? scalar(true, item.at)));
    if (!isRequired && !exists(path)) continue;
    const isRaw = textOf(child(item, "format") ?? scalar("", item.at)) === "raw";
    const content = readText(path, "the environment file", item.at);
    for (const [name, value] of parseEnvFile(content, path, variables, isRaw)) {
      // Docker's rule for files: omit a name without a value that is unset in the environment.
      if (value !== null) environment.set(name, scalar(value, item.at));
    }
  }
  const own = child(service, "environment");
  for (const [name, { value }] of own?.kind === "mapping" ? own.entries : []) {
    const outside = variables.get(name);
    const isAlone = value.kind === "scalar" && value.value === null;
    environment.set(name, isAlone && outside !== undefined ? { ...value, value: outside } : value);
  }
  const labels = new Map<string, Node>();
  const labelFiles = child(service, "label_file");
  for (const item of labelFiles?.kind === "list" ? labelFiles.items : []) {
    const path = textOf(item);
    for (const [name, value] of parseEnvFile(readText(path, "the label file", item.at), path, variables)) {
      labels.set(name, scalar(value ?? "", item.at));
    }
  }
  const ownLabels = child(service, "labels");
  for (const [name, { value }] of ownLabels?.kind === "mapping" ? ownLabels.entries : []) labels.set(name, value);
  return withValues(service, {
    env_file: undefined,
    label_file: undefined,
    environment: environment.size === 0 ? undefined : mapping(environment, own?.at ?? service.at),
    labels: labels.size === 0 ? undefined : mapping(labels, ownLabels?.at ?? service.at),
  });
}

/** Omits services with profiles, unless `COMPOSE_PROFILES` contains one of these (`*`: all). */
function withProfiles(tree: MappingNode, variables: Variables): MappingNode {
  const services = section(tree, "services");
  if (services === null) return tree;
  const active = (variables.get("COMPOSE_PROFILES") ?? "").split(",").map((name) => name.trim());
  const isActive = (service: Node): boolean => {
    const profiles = texts(child(service, "profiles"));
    return profiles.length === 0 || active.includes("*") || profiles.some((profile) => active.includes(profile));
  };
  const entries = [...services.entries].filter(([, { value }]) => isActive(value));
  return withValues(tree, { services: withEntries(services, new Map(entries)) });
}

/** Throws UserError, with file, line and key if possible. */
export function loadProject(project: ProjectFiles): Project {
  const [first] = project.files;
  if (first === undefined) throw new UserError("no Compose file: set --compose-file");
  const folder = first === "-" ? process.cwd() : dirname(resolve(first));
  const usual = resolve(folder, ".env");
  const envFiles = project.envFiles ?? (exists(usual) ? [usual] : []);
  const variables = variablesFor(project, envFiles, null);
  const tree = loadFiles({ ...project, folder, variables, depth: 0 });
  checkDependencies(child(tree, "services"));
  return { tree: withFiles(withProfiles(tree, variables), variables), variables };
}
