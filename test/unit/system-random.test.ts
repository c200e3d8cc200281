// The machine's randomness: small requests are served from a pool (runtime/system/random.ts).
import test from "ava";
import { SystemRandom } from "../../runtime/system/random.ts";

test("requests of any size get as many bytes, never the same twice, also when the pool is refilled", (t) => {
  const random = new SystemRandom();
  const seen = new Set<string>();
  // 4,096 is not a multiple of 17: the pool's end is reached within a request.
  for (let at = 0; at < 1_000; at += 1) {
    const bytes = random.bytes(17);
    t.is(bytes.length, 17);
    seen.add(Buffer.from(bytes).toString("hex"));
  }
  t.is(seen.size, 1_000);
  for (const size of [0, 1, 32, 33, 5_000]) t.is(random.bytes(size).length, size);
  t.true(random.bytes(5_000).some((byte) => byte !== 0));
});

test("returned bytes belong to the caller: writing to them affects nothing later", (t) => {
  const random = new SystemRandom();
  const first = random.bytes(32);
  const kept = Buffer.from(first);
  for (let at = 0; at < 500; at += 1) random.bytes(32).fill(0);
  t.deepEqual(Buffer.from(first), kept);
  t.is(new Uint8Array(first.buffer).length, 32, "it holds no part of the pool");
});
