// Nomad's kit for driver authors, on our exec driver: its harness starts a task, and its cases run commands in it.
import { execFile } from "node:child_process";
import { chmodSync, readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import anyTest from "ava";
import { tempDir } from "../../fixtures/muster.ts";
import { mockDriver, protoDir } from "../../fixtures/plugin-launch.ts";
import { patient } from "../../support/slowness.ts";
import { peerPath, peersMissing } from "../go/peers.ts";

const missing = peersMissing("nomad-kit") ?? (process.getuid?.() === 0 ? null : "needs root");
const test = missing === null ? anyTest.serial : anyTest.serial.skip;

/** A run takes some ten seconds on a quiet machine: this ends one that hangs. */
const runMsMax = 300_000;

/** The cases of Nomad 1.10.0, as Go names them. */
const cases = [
  "basic:_notty:_basic",
  "basic:_notty:_streaming",
  "basic:_notty:_stty_check",
  "basic:_notty:_stdin_passing",
  "basic:_tty:_basic",
  "basic:_tty:_streaming",
  "basic:_tty:_stty_check",
  "basic:_tty:_stdin_passing",
  "basic:_tty:_children_processes",
];

test("our exec driver passes Nomad's cases of commands in a task, with and without a terminal", async (t) => {
  t.timeout(patient(2 * runMsMax));
  const folder = tempDir(t, "kit");
  // Replaces /tmp, where the kit leaves its allocation directories and its plugin's socket. The task writes there too.
  chmodSync(folder, 0o1777);
  const stateDir = join(folder, "state");
  const output = await new Promise<string>((resolve) => {
    const env = {
      ...process.env,
      TMPDIR: folder,
      MUSTER_PROTO_DIR: protoDir,
      KIT_DRIVER: JSON.stringify([join(dirname(mockDriver), "muster-driver-exec")]),
      KIT_CONFIG: JSON.stringify({ state_dir: stateDir }),
      KIT_TASK: JSON.stringify({ command: "sleep", args: ["861735"] }),
      KIT_USER: "nobody",
    };
    execFile(peerPath("nomad-kit"), ["-test.v"], { env, timeout: runMsMax }, (_failed, stdout, stderr) =>
      resolve(stderr + stdout),
    );
  });
  const outcomes = Array.from(output.matchAll(/--- (\w+): TestExecStreaming\/(\S+)/g), ([, outcome, name]) => ({
    name,
    outcome,
  }));
  // The last case writes a file in the task, reads it on the node, and then accepts only control groups with Nomad's names. Our
  // driver names its own, so the case fails there, and must get that far.
  const expected = [...cases.map((name) => ({ name, outcome: "PASS" })), { name: "isolation", outcome: "FAIL" }];
  t.deepEqual(outcomes, expected, output.slice(-20_000));
  t.regex(
    output,
    /created file in task.*stdout: hello from the other side.*(?:unexpected freezer cgroup|actual stdout "0::)/s,
  );
  t.deepEqual(readdirSync(stateDir), [], "no state of the task remains");
});
