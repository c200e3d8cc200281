/**
 * Expands short forms, so that files are merged and read in one form: lists of `KEY=VALUE` become mappings, `8080:80` becomes a
 * mapping with `published` and `target`, paths become absolute.
 */
import { UsageError } from "../../lib/user-error.ts";
import { shellWords } from "../values.ts";
import { absolutePath } from "./paths.ts";
import { portsOf } from "./short-port.ts";
import { volumeOf } from "./short-volume.ts";
import {
  child,
  list,
  mapping,
  mistake,
  scalar,
  textOf,
  under,
  withEntries,
  withValues,
  type MappingNode,
  type Node,
} from "./located.ts";

type Rewrite = (node: Node, path: string) => Node | undefined;

/** Value of a key alone: none (`environment`) or empty (labels). */
function pairsWith(lone: null | ""): Rewrite {
  return (node, path) => {
    if (node.kind !== "list") {
      if (node.kind !== "mapping" || lone === null) return node;
      const texts = [...node.entries].map(([key, { value }]) => [key, textNode(value, "")] as const);
      return { ...mapping(texts, node.at), tag: node.tag };
    }
    const pairs = node.items.map((item) => {
      const text = textOf(item);
      const at = text.indexOf("=");
      const key = at < 0 ? text : text.slice(0, at);
      if (key === "") throw mistake(item.at, path, `has an invalid entry '${text}': expected KEY=VALUE`);
      return [key, scalar(at < 0 ? lone : text.slice(at + 1), item.at)] as const;
    });
    return { ...mapping(pairs, node.at), tag: node.tag };
  };
}

/** A number or boolean as a string; null as `blank`. */
function textNode(node: Node, blank: string | null): Node {
  if (node.kind !== "scalar") return node;
  return { ...node, value: node.value === null ? blank : String(node.value) };
}

const labels = pairsWith("");

function environment(node: Node, path: string): Node | undefined {
  const pairs = pairsWith(null)(node, path);
  if (pairs?.kind !== "mapping") return pairs;
  return withEntries(
    pairs,
    new Map([...pairs.entries].map(([key, { at, value }]) => [key, { at, value: textNode(value, null) }] as const)),
  );
}

function listed(node: Node): Node {
  return node.kind === "scalar" ? { ...list([{ ...node, tag: null }], node.at), tag: node.tag } : node;
}

/** Splits a command string into words, like Docker. */
function words(node: Node, path: string): Node | undefined {
  if (node.kind === "list") return { ...node, items: node.items.map((item) => textNode(item, "")) };
  if (node.kind !== "scalar" || node.value === null) return node.tag === null ? undefined : node;
  try {
    const items = shellWords(textOf(node), path).map((word) => scalar(word, node.at));
    return { ...list(items, node.at), tag: node.tag };
  } catch (error) {
    if (error instanceof UsageError) throw mistake(node.at, path, "has no closing quote");
    throw error;
  }
}

/** A test string is a shell command. */
function test(node: Node): Node {
  if (node.kind !== "scalar") return node;
  return { ...list([scalar("CMD-SHELL", node.at), scalar(textOf(node), node.at)], node.at), tag: node.tag };
}

/** Converts a list of names to a mapping, each with `value`. */
function named(value: (name: Node) => Node): Rewrite {
  return (node) => {
    if (node.kind !== "list") return node.kind === "scalar" && node.tag === null ? undefined : node;
    return {
      ...mapping(
        node.items.map((item) => [textOf(item), value(item)] as const),
        node.at,
      ),
      tag: node.tag,
    };
  };
}

const networks = named((name) => scalar(null, name.at));
const dependencies = named((name) => mapping([["condition", scalar("service_started", name.at)]], name.at));

/** Normalizes `name: address`, a list of addresses, or a list of `name:address` and `name=address`: one string each. */
function hosts(node: Node, path: string): Node {
  const line = (name: string, address: Node): Node =>
    scalar(`${name}:${textOf(address).replace(/^\[(.*)\]$/, "$1")}`, address.at);
  if (node.kind === "mapping") {
    const items = [...node.entries].flatMap(([name, { value }]) =>
      value.kind === "list" ? value.items.map((item) => line(name, item)) : [line(name, value)],
    );
    return { ...list(items, node.at), tag: node.tag };
  }
  if (node.kind !== "list") return node;
  const items = node.items.map((item) => {
    const match = /^([^:=]+)[:=](.+)$/.exec(textOf(item));
    if (match === null) throw mistake(item.at, path, `has an invalid entry '${textOf(item)}': expected NAME:ADDRESS`);
    return line(match[1] as string, scalar(match[2] as string, item.at));
  });
  return { ...node, items };
}

function grants(node: Node): Node {
  if (node.kind !== "list") return node;
  const items = node.items.map((item) => (item.kind === "scalar" ? mapping([["source", item]], item.at) : item));
  return { ...node, items };
}

function limits(node: Node): Node {
  if (node.kind !== "mapping") return node;
  const pairs = [...node.entries].map(([name, { value }]) => {
    const isOne = value.kind === "scalar";
    const one = isOne ? { ...value, tag: null, value: Number(value.value) } : value;
    return [
      name,
      isOne && value.tag !== "reset"
        ? mapping(
            [
              ["soft", one],
              ["hard", one],
            ],
            value.at,
          )
        : value,
    ] as const;
  });
  return { ...mapping(pairs, node.at), tag: node.tag };
}

function absent(node: Node): Node | undefined {
  return node.kind === "scalar" && node.value === null && node.tag === null ? undefined : node;
}

/** Applies `rewrites` to the values of a mapping. */
function rewritten(node: Node, path: string, rewrites: Readonly<Record<string, Rewrite>>): Node {
  if (node.kind !== "mapping") return node;
  const values: Record<string, Node | undefined> = {};
  for (const [key, rewrite] of Object.entries(rewrites)) {
    const value = child(node, key);
    if (value !== undefined && value.tag !== "reset") values[key] = rewrite(value, under(path, key));
  }
  return withValues(node, values);
}

function deploy(node: Node, path: string): Node | undefined {
  if (absent(node) === undefined) return undefined;
  const optional = { limits: absent, reservations: absent };
  return rewritten(node, path, {
    labels,
    update_config: absent,
    rollback_config: absent,
    restart_policy: absent,
    placement: absent,
    resources: (value, at) => (absent(value) === undefined ? undefined : rewritten(value, at, optional)),
  });
}

function serviceRewrites(folder: string): Readonly<Record<string, Rewrite>> {
  const path: Rewrite = (node) => ({ ...scalar(absolutePath(textOf(node), folder), node.at), tag: node.tag });
  return {
    annotations: labels,
    command: words,
    configs: grants,
    depends_on: dependencies,
    deploy,
    dns: listed,
    dns_search: listed,
    entrypoint: words,
    env_file: (node) => {
      const files = listed(node);
      if (files.kind !== "list") return files;
      const items = files.items.map((item) =>
        rewritten(item.kind === "scalar" ? mapping([["path", item]], item.at) : item, "", { path }),
      );
      return { ...files, items };
    },
    environment,
    extra_hosts: hosts,
    healthcheck: (node, at) => (absent(node) === undefined ? undefined : rewritten(node, at, { test })),
    label_file: (node, at) => {
      const files = listed(node);
      return files.kind === "list" ? { ...files, items: files.items.flatMap((item) => path(item, at) ?? []) } : files;
    },
    labels,
    logging: absent,
    networks,
    ports: (node, at) =>
      node.kind === "list"
        ? { ...node, items: node.items.flatMap((item, index) => portsOf(item, under(at, index))) }
        : node,
    secrets: grants,
    sysctls: labels,
    tmpfs: listed,
    ulimits: limits,
    volumes: (node, at) =>
      node.kind === "list"
        ? { ...node, items: node.items.map((item, index) => volumeOf(item, under(at, index), folder)) }
        : node,
  };
}

/** The old form `external: {name: x}` becomes `external: true` and `name: x`. */
function external(node: Node): Node {
  const given = child(node, "external");
  if (given === undefined || node.kind !== "mapping") return node;
  if (given.kind === "mapping") {
    return withValues(node, { external: scalar(true, given.at), name: child(given, "name") ?? child(node, "name") });
  }
  return withValues(node, { external: { ...scalar(/^true$/i.test(textOf(given)), given.at), tag: given.tag } });
}

function section(rewrite: Rewrite): Rewrite {
  return (node, path) => {
    if (absent(node) === undefined) return undefined;
    if (node.kind !== "mapping") return node;
    const pairs = [...node.entries].map(([name, { value }]) => [name, rewrite(value, under(path, name))] as const);
    return { ...mapping(pairs, node.at), tag: node.tag };
  };
}

/** `tree`: already checked; `folder`: the project's. Throws UserError for an invalid short form. */
export function withLongForms(tree: MappingNode, folder: string): MappingNode {
  const file: Rewrite = (node) => ({ ...scalar(absolutePath(textOf(node), folder), node.at), tag: node.tag });
  const rewrites = serviceRewrites(folder);
  const resource = section((node, path) => rewritten(external(node), path, { labels, file }));
  return rewritten(tree, "", {
    services: section((node, path) => rewritten(node, path, rewrites)),
    networks: resource,
    volumes: resource,
    secrets: resource,
    configs: resource,
  }) as MappingNode;
}
