/**
 * The drivers that the conformance suite tests: ours; one built with HashiCorp's own plugin library (`npm run peers`); and any
 * that MUSTER_TEST_DRIVERS names (a JSON list of subjects).
 */
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { mockDriver, protoDir } from "../../fixtures/plugin-launch.ts";
import { peerPath, peersMissing } from "../go/peers.ts";
import type { ConfigInput } from "../../../lib/hclspec/index.ts";
import type { TaskConfig } from "../../../proto/gen/nomad.ts";

export interface Subject {
  readonly name: string;
  readonly path: string;
  readonly args?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  /** The driver's own configuration. */
  readonly config?: ConfigInput;
  /** A task that runs for a minute or longer, and one that exits by itself with code 3. */
  readonly lasting: ConfigInput;
  readonly failing: ConfigInput;
  /** A long-running task that only SIGKILL ends. */
  readonly stubborn: ConfigInput;
  /** The exit code and signal of a long-running task after SIGTERM. */
  readonly terminated: { readonly exitCode: number; readonly signal: number };
  /** Waits until a running task receives signals, where a task that has just started does not. */
  readonly receivesSignals?: (task: TaskConfig) => Promise<unknown>;
  /** Another process of the driver can recover its tasks. */
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

type GoPlugin =
  | { readonly kind: "built"; readonly path: string }
  | { readonly kind: "absent"; readonly reason: string };

/** The Go program, driver and host in one. */
export function goPlugin(): GoPlugin {
  const reason = peersMissing("go-plugin");
  return reason === null ? { kind: "built", path: peerPath("go-plugin") } : { kind: "absent", reason };
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

/** Includes those to skip, with the reason. */
export function subjects(): { readonly found: readonly Subject[]; readonly skipped: readonly string[] } {
  const named = JSON.parse(process.env["MUSTER_TEST_DRIVERS"] ?? "[]") as readonly Subject[];
  const go = goPlugin();
  return go.kind === "absent"
    ? { found: [mock, exec, ...named], skipped: [`go-sh: ${go.reason}`] }
    : { found: [mock, exec, goDriver(go.path), ...named], skipped: [] };
}
