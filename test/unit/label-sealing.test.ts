import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import test from "ava";
import { SimRandom } from "../../runtime/sim/random.ts";
import { open, seal, sealKeyBytes, sealPieces, type SealedFor } from "../../runtime/store/seal.ts";
import { labelSealing } from "../../simulation/rehearsal/label-sealing.ts";

const key = { id: "k1", key: new SimRandom("key").bytes(sealKeyBytes) };
const data = new TextEncoder().encode("record");
const here: SealedFor = { purpose: "record", place: "12" };

test("labelled data opens with its key at its place only", (t) => {
  const random = new SimRandom("seal");
  const sealed = seal(key, data, random, here, labelSealing);
  t.deepEqual(Uint8Array.from(open(key.key, sealed, here, labelSealing) ?? []), data);
  t.is(open(key.key, sealed, { purpose: "record", place: "13" }, labelSealing), null);
  t.is(open(key.key, sealed, { purpose: "message", place: "12" }, labelSealing), null);
  t.is(open(new SimRandom("other").bytes(sealKeyBytes), sealed, here, labelSealing), null);
  const { nonce, pieces } = sealPieces(key, data, random, here, labelSealing);
  t.deepEqual({ nonce, ciphertext: Buffer.concat(pieces) }, { nonce: sealed.nonce, ciphertext: sealed.ciphertext });
});

test("labelled data is not data that real managers accept", (t) => {
  const sealed = seal(key, data, new SimRandom("seal"), here, labelSealing);
  t.is(open(key.key, sealed, here), null);
  t.is(open(key.key, seal(key, data, new SimRandom("seal"), here), here, labelSealing), null);
});

test("only rehearsals have it: real managers are never given any sealing", (t) => {
  const top = fileURLToPath(new URL("../..", import.meta.url));
  const naming = (text: string, folders: readonly string[]): readonly string[] =>
    folders.flatMap((folder) =>
      readdirSync(join(top, folder), { recursive: true, encoding: "utf8" })
        .map((file) => join(folder, file))
        .filter((path) => path.endsWith(".ts") && readFileSync(join(top, path), "utf8").includes(text)),
    );
  const all = ["actors", "cli", "edges", "library", "processes", "runtime", "simulation"];
  t.deepEqual(naming("label-sealing.ts", all), ["simulation/rehearsal/run.ts"]);
  t.deepEqual(naming("sealing:", ["cli", "library", "processes"]), []);
});
