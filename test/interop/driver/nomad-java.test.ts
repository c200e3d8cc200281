// Nomad's java driver under our agent: a class delivered by a config runs in a chroot, and keeps its process like a task of
// exec.
import { spawnSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import anyTest from "ava";
import { tempDir } from "../../fixtures/muster.ts";
import { until } from "../../fixtures/until.ts";
import { peersMissing } from "../go/peers.ts";
import { isRunning, outlives, processesCalled } from "./nomad-outlives.ts";
import { createLong, nomadWorld } from "./nomad-world.ts";

function javaMissing(): string | null {
  if (spawnSync("java", ["-version"]).status === 0) return null;
  const reason = "needs java: install Debian's package default-jre-headless";
  if (process.env["MUSTER_CI"] !== undefined) throw new Error(reason);
  return reason;
}

const missing = peersMissing("nomad-driver") ?? (process.getuid?.() === 0 ? null : "needs root") ?? javaMissing();
const test = missing === null ? anyTest.serial : anyTest.serial.skip;

/**
 * A Java runtime has no compiler, so this is the class file in base64, created by `javac --release 8 -g:none Looks.java` from
 *
 *   class Looks {
 *     public static void main(String[] paths) throws Exception {
 *       for (String path : paths) System.out.println(path + " " + new java.io.File(path).exists());
 *       Thread.sleep(Long.MAX_VALUE);
 *     }
 *   }
 */
const looksClass = [
  "yv66vgAAADQAQAoAAgADBwAEDAAFAAYBABBqYXZhL2xhbmcvT2JqZWN0AQAGPGluaXQ+AQADKClWCQAIAAkHAAoMAAsADAEAEGph",
  "dmEvbGFuZy9TeXN0ZW0BAANvdXQBABVMamF2YS9pby9QcmludFN0cmVhbTsHAA4BABdqYXZhL2xhbmcvU3RyaW5nQnVpbGRlcgoA",
  "DQADCgANABEMABIAEwEABmFwcGVuZAEALShMamF2YS9sYW5nL1N0cmluZzspTGphdmEvbGFuZy9TdHJpbmdCdWlsZGVyOwgAFQEA",
  "ASAHABcBAAxqYXZhL2lvL0ZpbGUKABYAGQwABQAaAQAVKExqYXZhL2xhbmcvU3RyaW5nOylWCgAWABwMAB0AHgEABmV4aXN0cwEA",
  "AygpWgoADQAgDAASACEBABwoWilMamF2YS9sYW5nL1N0cmluZ0J1aWxkZXI7CgANACMMACQAJQEACHRvU3RyaW5nAQAUKClMamF2",
  "YS9sYW5nL1N0cmluZzsKACcAKAcAKQwAKgAaAQATamF2YS9pby9QcmludFN0cmVhbQEAB3ByaW50bG4HACwBAA5qYXZhL2xhbmcv",
  "TG9uZwV//////////woAMAAxBwAyDAAzADQBABBqYXZhL2xhbmcvVGhyZWFkAQAFc2xlZXABAAQoSilWBwA2AQAFTG9va3MBAARD",
  "b2RlAQAEbWFpbgEAFihbTGphdmEvbGFuZy9TdHJpbmc7KVYBAA1TdGFja01hcFRhYmxlBwA8AQATW0xqYXZhL2xhbmcvU3RyaW5n",
  "OwEACkV4Y2VwdGlvbnMHAD8BABNqYXZhL2xhbmcvRXhjZXB0aW9uACAANQACAAAAAAACAAAABQAGAAEANwAAABEAAQABAAAABSq3",
  "AAGxAAAAAAAJADgAOQACADcAAABmAAUABQAAAEcqTCu+PQM+HRyiADcrHTI6BLIAB7sADVm3AA8ZBLYAEBIUtgAQuwAWWRkEtwAY",
  "tgAbtgAftgAitgAmhAMBp//KFAAtuAAvsQAAAAEAOgAAAA0AAv4ABwcAOwEB+AA4AD0AAAAEAAEAPgAA",
].join("");

test("a class of Nomad's java driver runs in a chroot of the node's paths, and keeps its process too", async (t) => {
  const { agent, manager } = await nomadWorld(t, "java", null);
  const file = join(tempDir(t, "java"), "Looks.class");
  writeFileSync(file, Buffer.from(looksClass, "base64"));
  await manager.muster("config", "create", "looks", file);
  // Its own directories, a node path that the chroot has, and one that it must not have.
  const paths = ["/alloc/data", "/local", "/secrets", "/usr/bin/java", agent.dataDir];
  const config = { class: "Looks", class_path: "${MUSTER_CONFIGS}", args: paths, jvm_options: ["-Xint", "-Xmx16m"] };
  await createLong(manager, "java", config, "--config", "source=looks,target=Looks.class");
  await until("the task to run", () => isRunning(manager));
  const said = await until("all of its output", async () => {
    const lines = (await manager.muster("service", "logs", "--raw", "long")).split("\n").filter((line) => line !== "");
    return lines.length >= paths.length ? lines : null;
  });
  t.deepEqual(said, [...paths.slice(0, -1).map((path) => `${path} true`), `${agent.dataDir} false`]);
  const command = `java -Xint -Xmx16m -cp /configs Looks ${paths.join(" ")}`;
  await outlives(t, { agent, manager }, "java", processesCalled(command));
  t.false(readFileSync("/proc/self/mountinfo", "utf8").includes(agent.dataDir), "none of it is mounted");
});
