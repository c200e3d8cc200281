// Our .proto files against the wire tables of SwarmKit's API and of Nomad's plugins: exactly the same messages, fields, enum
// values and methods.
import { readFileSync, readdirSync } from "node:fs";
import { fileURLToPath } from "node:url";
import test from "ava";
import protobuf from "protobufjs";

interface WireTable {
  readonly messages: Record<string, Record<string, string>>;
  readonly enums: Record<string, Record<string, number>>;
  readonly services: Record<string, Record<string, string>>;
}

const protoDir = fileURLToPath(new URL("../../proto/", import.meta.url));

function wireTable(name: string): WireTable {
  return JSON.parse(readFileSync(new URL(`../fixtures/wire/${name}.json`, import.meta.url), "utf8")) as WireTable;
}

function load(folder: string): protobuf.Root {
  const root = new protobuf.Root();
  root.resolvePath = (_origin, target) => (target.startsWith("/") ? target : protoDir + target);
  const files = readdirSync(protoDir + folder, { recursive: true, encoding: "utf8" })
    .filter((file) => file.endsWith(".proto"))
    .map((file) => protoDir + folder + file);
  root.loadSync(files, { keepCase: true });
  root.resolveAll();
  return root;
}

function typeName(field: protobuf.Field): string {
  const value = field.resolvedType === null ? field.type : field.resolvedType.fullName.slice(1);
  return field instanceof protobuf.MapField ? `map<${field.keyType},${value}>` : value;
}

/** A field as the table writes it: `name | type | modifier`. */
function describe(field: protobuf.Field): string {
  const parts = [field.name, typeName(field)];
  if (field.partOf !== null) parts.push(`oneof ${field.partOf.name}`);
  else if (field.repeated) parts.push("repeated");
  return parts.join(" | ");
}

function walk(namespace: protobuf.NamespaceBase, found: WireTable): WireTable {
  for (const nested of namespace.nestedArray) {
    const name = nested.fullName.slice(1);
    if (nested instanceof protobuf.Enum) found.enums[name] = { ...nested.values };
    if (nested instanceof protobuf.Type) {
      found.messages[name] = Object.fromEntries(nested.fieldsArray.map((field) => [String(field.id), describe(field)]));
    }
    if (nested instanceof protobuf.Service) {
      found.services[name] = Object.fromEntries(
        nested.methodsArray.map((method) => {
          const request = `${method.requestStream === true ? "stream " : ""}${method.resolvedRequestType?.fullName.slice(1)}`;
          const response = `${method.responseStream === true ? "stream " : ""}${method.resolvedResponseType?.fullName.slice(1)}`;
          return [method.name, `(${request}) returns (${response})`];
        }),
      );
    }
    if (nested instanceof protobuf.Namespace) walk(nested, found);
  }
  return found;
}

function read(folder: string, packageName: string): WireTable {
  const namespace = load(folder).lookup(packageName) as protobuf.Namespace;
  return walk(namespace, { messages: {}, enums: {}, services: {} });
}

const table = wireTable("swarmkit");
const ours = read("docker/swarmkit/v1/", "docker.swarmkit.v1");
const pluginTable = wireTable("nomad");
const plugins = read("hashicorp/nomad/", "hashicorp.nomad.plugins");

test("every message of SwarmKit's API has exactly the fields of the wire table", (t) => {
  t.true(Object.keys(table.messages).length > 250);
  t.deepEqual(ours.messages, table.messages);
});

test("every enum of SwarmKit's API has exactly the values of the wire table", (t) => {
  t.true(Object.keys(table.enums).length > 30);
  t.deepEqual(ours.enums, table.enums);
});

test("every service of SwarmKit's API has exactly the methods of the wire table", (t) => {
  t.is(Object.keys(table.services).length, 9);
  t.deepEqual(ours.services, table.services);
});

test("every message, enum and service of Nomad's task drivers equals the wire table's", (t) => {
  t.true(Object.keys(pluginTable.messages).length > 80);
  // The one message that the table leaves to the text of the reference (§4).
  const retry = "hashicorp.nomad.plugins.shared.structs.RecoverableError";
  t.deepEqual(plugins.messages, { ...pluginTable.messages, [retry]: { 1: "recoverable | bool" } });
  t.deepEqual(plugins.enums, pluginTable.enums);
  t.deepEqual(plugins.services, pluginTable.services);
});
