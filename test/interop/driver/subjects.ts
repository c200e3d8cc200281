/**
 * The drivers that the conformance suite runs against: ours; one made with HashiCorp's own plugin library, built here from
 * `go-plugin/` where Go and its modules are to be had; and any that MUSTER_TEST_DRIVERS names (a JSON list of subjects).
 */
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdir, rename } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { mockDriver, protoDir } from "../../fixtures/plugin-launch.ts";
import type { ConfigInput } from "../../../runtime/hclspec/index.ts";

export interface Subject {
  readonly name: string;
  readonly path: string;
  readonly args?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  /** Of the driver itself. */
  readonly config?: ConfigInput;
  /** A task that runs for a minute or longer, and one that ends by itself with exit code 3. */
  readonly lasting: ConfigInput;
  readonly failing: ConfigInput;
  /** A lasting task that no signal but the kill ends. */
  readonly stubborn: ConfigInput;
  /** The exit code and signal with which a lasting task ends after SIGTERM. */
  readonly terminated: { readonly exitCode: number; readonly signal: number };
  /** Tasks are found again by another process of the driver. */
  readonly recovers: boolean;
  readonly terminals: boolean;
}

const mock: Subject = {
  name: "mock",
  path: mockDriver,
  lasting: { run_for: "1h" },
  failing: { run_for: "20ms", exit_code: 3 },
  stubborn: { run_for: "1h", ignores_stop: true },
  terminated: { exitCode: 143, signal: 15 },
  recovers: true,
  terminals: false,
};

const exec: Subject = {
  name: "exec",
  path: join(dirname(mockDriver), "muster-driver-exec"),
  config: { state_dir: join(tmpdir(), "muster-test", "exec") },
  lasting: { command: "sleep", args: ["60"] },
  failing: { command: "sh", args: ["-c", "exit 3"] },
  stubborn: { command: "sh", args: ["-c", "trap '' TERM INT; while :; do sleep 1; done"] },
  terminated: { exitCode: 143, signal: 15 },
  recovers: true,
  terminals: true,
};

const goSource = fileURLToPath(new URL("go-plugin/", import.meta.url));
/** Outside the tree, and kept from one run to the next: building takes a minute the first time. */
const goBinary = join(tmpdir(), "muster-test", "go-sh");

function goTool(): string | null {
  const places = (process.env["PATH"] ?? "").split(":").map((folder) => join(folder, "go"));
  return [...places, "/usr/local/go/bin/go"].find((path) => existsSync(path)) ?? null;
}

export type GoPlugin =
  | { readonly kind: "built"; readonly path: string }
  | { readonly kind: "absent"; readonly reason: string };

/** The Go program, driver and host in one. */
export async function goPlugin(): Promise<GoPlugin> {
  const go = goTool();
  if (go === null) return { kind: "absent", reason: "there is no Go" };
  // Test files run at the same time: each builds into a place of its own, and moves it in one step.
  const fresh = `${goBinary}.${process.pid}`;
  try {
    await mkdir(join(tmpdir(), "muster-test"), { recursive: true });
    const env = { ...process.env, CGO_ENABLED: "0", GOFLAGS: "-buildvcs=false" };
    await promisify(execFile)(go, ["build", "-o", fresh, "."], { cwd: goSource, env, timeout: 170_000 });
    await rename(fresh, goBinary);
  } catch (error) {
    return { kind: "absent", reason: `it cannot be built: ${String(error).slice(0, 300)}` };
  }
  return { kind: "built", path: goBinary };
}

function goDriver(path: string): Subject {
  return {
    name: "go-sh",
    path,
    env: { MUSTER_PROTO_DIR: protoDir },
    lasting: { command: "sleep 60" },
    failing: { command: "exit 3" },
    stubborn: { command: "trap '' TERM INT; while :; do sleep 1; done" },
    terminated: { exitCode: 143, signal: 15 },
    recovers: false,
    terminals: false,
  };
}

/** With what has to be skipped, and why. */
export async function subjects(): Promise<{ readonly found: readonly Subject[]; readonly skipped: readonly string[] }> {
  const named = JSON.parse(process.env["MUSTER_TEST_DRIVERS"] ?? "[]") as readonly Subject[];
  const go = await goPlugin();
  return go.kind === "absent"
    ? { found: [mock, exec, ...named], skipped: [`go-sh: ${go.reason}`] }
    : { found: [mock, exec, goDriver(go.path), ...named], skipped: [] };
}
