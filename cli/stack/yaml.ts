/**
 * Parses YAML into a tree with places: YAML 1.2, plus what Docker's parser accepts from 1.1 in older files: octal numbers
 * (`0440`) and merge keys (`<<`). Only this file uses the YAML library.
 *
 * Limits: at most `nodesMax` values after alias expansion, and `depthMax` levels, so that nested aliases cannot exhaust the
 * memory.
 */
import {
  isAlias,
  isMap,
  isScalar,
  isSeq,
  LineCounter,
  parse,
  parseAllDocuments,
  parseDocument,
  stringify,
  type Document,
  type Node as YamlNode,
  type Pair,
  type Scalar,
} from "yaml";
import { UserError } from "../../lib/user-error.ts";
import {
  Mistake,
  mistake,
  under,
  withEntries,
  type Entry,
  type MappingNode,
  type MergeTag,
  type Node,
  type Place,
} from "./located.ts";

/** Far more than any stack has (a service has a few dozen values); only multiplying aliases reach it. */
const nodesMax = 200_000;
/** The specification's deepest value is at level ten. */
const depthMax = 60;

const tags: Readonly<Record<string, MergeTag>> = { "!reset": "reset", "!override": "override" };

interface Reading {
  readonly file: string;
  readonly document: Document;
  readonly lines: LineCounter;
  count: number;
}

function placeAt(file: string, lines: LineCounter, offset: number): Place {
  const { line, col } = lines.linePos(offset);
  return { file, line, column: col };
}

function placeOf(reading: Reading, node: YamlNode | null | undefined): Place {
  const start = node?.range?.[0];
  return start === undefined ? { file: reading.file, line: 0 } : placeAt(reading.file, reading.lines, start);
}

/** Only unquoted scalars can be numbers; the schemas in use have no other types. */
function scalarValue(node: Scalar): string | number | boolean | null {
  const { value, source, type } = node;
  if (typeof value === "bigint") return Number(value);
  if (type === "PLAIN" && typeof value === "number" && source !== undefined && /^[-+]?0[0-7]+$/.test(source)) {
    return Number.parseInt(source, 8);
  }
  if (typeof value === "string" || typeof value === "number" || typeof value === "boolean") return value;
  return null;
}

function keyText(reading: Reading, key: unknown, path: string, at: Place): string {
  if (isScalar(key)) {
    if (typeof key.value === "symbol") return "<<";
    if (key.value !== null) return String(scalarValue(key));
  }
  if (isAlias(key)) return keyText(reading, key.resolve(reading.document), path, at);
  throw mistake(at, path, "has a key that is not a string");
}

/** The mappings that `<<` merges: one, or a list in which earlier ones win. */
function merged(node: Node, path: string): readonly MappingNode[] {
  if (node.kind === "mapping") return [node];
  if (node.kind === "list") return node.items.flatMap((item) => merged(item, path));
  throw mistake(node.at, path, "must be a mapping, or a list of mappings");
}

function readMapping(reading: Reading, pairs: readonly Pair[], own: Place, path: string, depth: number) {
  const entries = new Map<string, Entry>();
  const bases: MappingNode[] = [];
  for (const { key, value } of pairs) {
    const at = placeOf(reading, key as YamlNode | null);
    const name = keyText(reading, key, path, at);
    const read = readNode(reading, value as YamlNode | null, under(path, name), depth + 1, at);
    const isMerge = name === "<<" && (!isScalar(key) || key.type === "PLAIN" || typeof key.value === "symbol");
    if (isMerge) bases.push(...merged(read, under(path, name)));
    else entries.set(name, { at, value: read });
  }
  for (const base of bases) for (const [name, entry] of base.entries) if (!entries.has(name)) entries.set(name, entry);
  return { kind: "mapping", entries, at: own, tag: null } as const;
}

function readNode(reading: Reading, node: YamlNode | null, path: string, depth: number, outer: Place): Node {
  reading.count += 1;
  const at = node === null ? outer : placeOf(reading, node);
  if (reading.count > nodesMax) throw mistake(at, path, `is too large: aliases expand to more than ${nodesMax} values`);
  if (depth > depthMax) throw mistake(at, path, `is more than ${depthMax} levels deep`);
  if (node === null) return { kind: "scalar", value: null, at, tag: null };
  if (isAlias(node)) {
    const target = node.resolve(reading.document);
    if (target === undefined) throw mistake(at, path, `refers to an undefined anchor: *${node.source}`);
    return readNode(reading, target, path, depth + 1, at);
  }
  const tag = tags[node.tag ?? ""] ?? null;
  if (isMap(node)) return { ...readMapping(reading, node.items, at, path, depth), tag };
  if (isSeq(node)) {
    const items = node.items.map((item, index) =>
      readNode(reading, item as YamlNode | null, under(path, index), depth + 1, at),
    );
    return { kind: "list", items, at, tag };
  }
  if (isScalar(node)) return { kind: "scalar", value: scalarValue(node), at, tag };
  throw mistake(at, path, "has a type that Compose files do not support");
}

/** `file`: its name in errors; `otherwise`: the error of a file that is not a mapping. Throws Mistake. */
export function parseYaml(
  text: string,
  file: string,
  otherwise = "a Compose file must be a mapping with 'services'",
): MappingNode {
  const lines = new LineCounter();
  const document = parseDocument(text, {
    lineCounter: lines,
    merge: true,
    keepSourceTokens: false,
    prettyErrors: false,
  });
  const [error] = document.errors;
  if (error !== undefined) {
    throw new Mistake(placeAt(file, lines, error.pos[0]), "", sentence(error.message), { cause: error });
  }
  const top: Place = { file, line: 1, column: 1 };
  const root = readNode({ file, document, lines, count: 0 }, document.contents, "", 0, top);
  if (root.kind === "scalar" && root.value === null) return withEntries(emptyMapping(top), new Map());
  if (root.kind !== "mapping") throw mistake(root.at, "", otherwise);
  return root;
}

/** Parses all documents of a file (separated by `---`), each of which must be a mapping. Skips empty ones. */
export function parseYamlDocuments(text: string, file: string): readonly MappingNode[] {
  const lines = new LineCounter();
  const documents = parseAllDocuments(text, {
    lineCounter: lines,
    merge: true,
    keepSourceTokens: false,
    prettyErrors: false,
  });
  const found: MappingNode[] = [];
  let count = 0;
  for (const document of Array.isArray(documents) ? documents : []) {
    const [error] = document.errors;
    if (error !== undefined) {
      throw new Mistake(placeAt(file, lines, error.pos[0]), "", sentence(error.message), { cause: error });
    }
    const reading: Reading = { file, document, lines, count };
    const root = readNode(reading, document.contents, "", 0, { file, line: 1 });
    count = reading.count;
    if (root.kind === "scalar" && root.value === null) continue;
    if (root.kind !== "mapping") throw mistake(root.at, "", "each document must be a mapping with 'kind'");
    found.push(root);
  }
  return found;
}

function emptyMapping(at: Place): MappingNode {
  return { kind: "mapping", entries: new Map(), at, tag: null };
}

/** The library's first sentence, in lower case. */
function sentence(message: string): string {
  const first = message.split("\n")[0] ?? "";
  return `${first.charAt(0).toLowerCase()}${first.slice(1)}`;
}

/** Parses YAML or JSON into plain values; `what`: name of the text in errors. Throws UserError. */
export function yamlValue(text: string, what: string): unknown {
  try {
    return parse(text, { prettyErrors: false, merge: true }) as unknown;
  } catch (error) {
    throw new UserError(`${what}: ${sentence((error as Error).message)}`, { cause: error });
  }
}

/** Formats values as YAML, keys in the given order. */
export function yamlText(value: unknown): string {
  return stringify(value, { lineWidth: 0, aliasDuplicateObjects: false });
}
