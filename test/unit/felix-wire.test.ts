// proto/felix against the wire tables of three generations of Felix: it has each of their fields, with its number and type.
import test from "ava";
import protobuf from "protobufjs";
import { wireTable } from "../fixtures/felix-wire.ts";

const root = protobuf.loadSync(new URL("../../proto/felix/dataplane.proto", import.meta.url).pathname);
root.resolveAll();

const camel = (name: string): string => name.replaceAll(/_([a-z0-9])/g, (_, letter: string) => letter.toUpperCase());

function typeName(field: protobuf.Field): string {
  const value = field.resolvedType === null ? field.type : field.resolvedType.fullName.slice(1);
  return field instanceof protobuf.MapField ? `map<${field.keyType},${value}>` : value;
}

/** Names until 3.31, messages from 3.32 on: the same bytes around them, read by proto/tier-policies.ts. */
const eitherOf = ["felix.TierInfo 2", "felix.TierInfo 3"];

for (const generation of ["2.0", "v3.26", "v3.32"]) {
  const table = wireTable(generation);

  test(`every field of Felix ${generation} exists with its number and type`, (t) => {
    for (const [message, fields] of Object.entries(table.messages)) {
      if (message === "felix.SyncRequest") continue; // belongs to a gRPC service that drivers do not use
      const type = root.lookupType(message);
      for (const [number, described] of Object.entries(fields)) {
        const [name, wanted] = described.split(" | ") as [string, string];
        const field = type.fieldsById[Number(number)];
        t.truthy(field, `${message} ${number}`);
        // A field that a later generation renamed, or made a list, has the same bytes.
        if (generation !== "2.0") t.is(camel(field?.name ?? ""), camel(name), `${message} ${number}`);
        const expected = eitherOf.includes(`${message} ${number}`) ? "bytes" : wanted;
        t.is(field === undefined ? "" : typeName(field), expected, `${message} ${number}`);
      }
    }
    for (const [name, values] of Object.entries(table.enums)) t.like({ ...root.lookupEnum(name).values }, values);
  });
}
