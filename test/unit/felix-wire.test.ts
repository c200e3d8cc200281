// proto/felix against the wire tables of two generations of Felix: each of their fields is there, by its number and type.
import { readFileSync } from "node:fs";
import test from "ava";
import protobuf from "protobufjs";

interface WireTable {
  readonly messages: Readonly<Record<string, Readonly<Record<string, string>>>>;
  readonly enums: Readonly<Record<string, Readonly<Record<string, number>>>>;
}

const root = protobuf.loadSync(new URL("../../proto/felix/dataplane.proto", import.meta.url).pathname);
root.resolveAll();

const camel = (name: string): string => name.replaceAll(/_([a-z0-9])/g, (_, letter: string) => letter.toUpperCase());

function typeName(field: protobuf.Field): string {
  const value = field.resolvedType === null ? field.type : field.resolvedType.fullName.slice(1);
  return field instanceof protobuf.MapField ? `map<${field.keyType},${value}>` : value;
}

for (const generation of ["felix-2.0", "felix-v3.26"]) {
  const table = JSON.parse(
    readFileSync(new URL(`../fixtures/wire/${generation}.json`, import.meta.url), "utf8"),
  ) as WireTable;

  test(`every field of ${generation} is known by its number and type`, (t) => {
    for (const [message, fields] of Object.entries(table.messages)) {
      if (message === "felix.SyncRequest") continue; // of a gRPC service that drivers have no part in
      const type = root.lookupType(message);
      for (const [number, described] of Object.entries(fields)) {
        const [name, wanted] = described.split(" | ") as [string, string];
        const field = type.fieldsById[Number(number)];
        t.truthy(field, `${message} ${number}`);
        // What a later generation renamed, or made a list, has the same bytes.
        if (generation === "felix-v3.26") t.is(camel(field?.name ?? ""), camel(name), `${message} ${number}`);
        t.is(field === undefined ? "" : typeName(field), wanted, `${message} ${number}`);
      }
    }
    for (const [name, values] of Object.entries(table.enums)) t.like({ ...root.lookupEnum(name).values }, values);
  });
}
