// A release, built twice under circumstances that must not matter: the same bytes, checksums, and a bill of materials.
import { execFile, spawnSync } from "node:child_process";
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import test from "ava";
import { tempDir } from "../fixtures/muster.ts";
import { patient } from "../support/slowness.ts";

const top = fileURLToPath(new URL("../../", import.meta.url));
/** Without it, packages of Debian would be fetched. */
const hasImageBase = Boolean(process.env["MUSTER_IMAGE_BASE"]);

interface Bom {
  readonly bomFormat: string;
  readonly serialNumber: string;
  readonly metadata: { readonly component: { readonly name: string }; readonly timestamp?: string };
  readonly components: readonly { readonly "bom-ref": string; readonly purl: string }[];
  readonly dependencies: readonly { readonly ref: string; readonly dependsOn: readonly string[] }[];
}

/** The folder of a release that is built under that umask, in that time zone and language. */
async function built(out: string, umask: string, env: NodeJS.ProcessEnv): Promise<string> {
  const command = [process.execPath, join(top, "tools/package/main.ts"), "release", "--draft", "--out", out];
  await promisify(execFile)("sh", ["-c", 'umask "$0"; exec "$@"', umask, ...command], {
    env: { ...process.env, ...env },
  });
  return join(out, "release");
}

(hasImageBase ? test.serial : test.serial.skip)(
  "a release has the same bytes each time, and lists what it contains",
  async (t) => {
    t.timeout(patient(900_000));
    const [first, second] = await Promise.all([
      built(tempDir(t, "release"), "022", { TZ: "UTC", LC_ALL: "C" }),
      built(tempDir(t, "another-release"), "077", { TZ: "Asia/Tokyo", LC_ALL: "C.UTF-8" }),
    ]);
    const sums = readFileSync(join(first, "SHA256SUMS"), "utf8");
    t.is(readFileSync(join(second, "SHA256SUMS"), "utf8"), sums);
    t.is(spawnSync("sha256sum", ["--check", "--strict", "SHA256SUMS"], { cwd: first }).status, 0);
    const listed = sums
      .trim()
      .split("\n")
      .map((line) => line.split("  ")[1] ?? "");
    t.deepEqual(
      listed,
      readdirSync(first)
        .filter((name) => name !== "SHA256SUMS")
        .toSorted(),
    );
    for (const ending of [".deb", ".tgz", ".tar", ".cdx.json"])
      t.true(
        listed.some((name) => name.endsWith(ending)),
        ending,
      );

    const bill = listed.find((name) => name.endsWith(".cdx.json")) ?? "";
    const bom = JSON.parse(readFileSync(join(first, bill), "utf8")) as Bom;
    t.is(bom.bomFormat, "CycloneDX");
    t.is(bom.metadata.component.name, "muster");
    t.regex(bom.serialNumber, /^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-8[0-9a-f]{3}-[0-9a-f]{12}$/);
    const refs = new Set(bom.components.map((component) => component["bom-ref"]));
    t.is(refs.size, bom.components.length);
    const { dependencies } = JSON.parse(readFileSync(join(top, "package.json"), "utf8")) as {
      readonly dependencies: Readonly<Record<string, string>>;
    };
    for (const [name, version] of Object.entries(dependencies)) t.true(refs.has(`${name}@${version}`), name);
    // Bundled into the web interface, and tools of a checkout.
    for (const name of ["preact", "uplot", "elkjs"])
      t.true(
        [...refs].some((ref) => ref.startsWith(`${name}@`)),
        name,
      );
    for (const name of ["ava", "typescript", "oxlint"])
      t.false(
        [...refs].some((ref) => ref.startsWith(`${name}@`)),
        name,
      );
    t.true([...refs].some((ref) => /^pkg:golang\/github\.com\/nats-io\/nats-server\/v2@v\d/.test(ref)));
    for (const { dependsOn } of bom.dependencies) for (const ref of dependsOn) t.true(refs.has(ref), ref);
  },
);
