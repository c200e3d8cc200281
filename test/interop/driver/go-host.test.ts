// Our drivers under a host built with HashiCorp's own plugin library, which Nomad's agent also uses.
import { execFile } from "node:child_process";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import test from "ava";
import { execFor } from "../../../drivers/exec/foreign.ts";
import { uidOf } from "../../../linux/user.ts";
import { MockDriver } from "../../../drivers/mock/driver.ts";
import { objectSpec } from "../../../edges/plugin/server/fields.ts";
import { mockDriver, packed, protoDir } from "../../fixtures/plugin-launch.ts";
import type { ConfigInput } from "../../../lib/hclspec/index.ts";
import type { Driver } from "../../../edges/plugin/server/index.ts";
import { goPlugin } from "./subjects.ts";

const go = goPlugin();

interface Step {
  readonly step: string;
  readonly value: unknown;
}

interface Ours {
  readonly path: string;
  readonly driver: Pick<Driver, "config" | "name" | "task">;
  readonly config: ConfigInput;
  /** A task that exits with 5. */
  readonly task: ConfigInput;
}

const mock: Ours = {
  path: mockDriver,
  driver: new MockDriver(),
  config: {},
  task: { run_for: "200ms", exit_code: 5 },
};
const exec: Ours = {
  path: join(dirname(mockDriver), "muster-driver-exec"),
  // Not `exec`, which is Nomad's own.
  driver: execFor([], {}),
  config: { state_dir: join(tmpdir(), "muster-test", "exec") },
  task: {
    command: "sh",
    args: ["-c", `sleep 0.2; [ "$(id -u)" = ${process.getuid?.() === 0 ? uidOf("nobody") : uidOf("")} ] && exit 5`],
  },
};

for (const [ours, tls] of [
  [mock, false],
  [mock, true],
  [exec, false],
] as const) {
  const { name } = ours.driver;
  const title = `our driver ${name} runs under a stock plugin host${tls ? " that asks for TLS" : ""}`;
  if (go.kind === "absent") {
    test.skip(`${title}: ${go.reason}`, () => {});
    continue;
  }
  test(title, async (t) => {
    const { config = {}, task } = ours.driver;
    const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString("hex");
    const { stdout } = await promisify(execFile)(
      go.path,
      [
        "host",
        ...(tls ? ["tls"] : []),
        ours.path,
        hex(packed(objectSpec(config), ours.config)),
        hex(packed(objectSpec(task), ours.task)),
      ],
      { env: { ...process.env, MUSTER_PROTO_DIR: protoDir }, timeout: 60_000 },
    );
    const steps = Object.fromEntries(
      stdout
        .trim()
        .split("\n")
        .map((line) => JSON.parse(line) as Step)
        .map(({ step, value }) => [step, value]),
    ) as Readonly<Record<string, Record<string, unknown>>>;
    t.like(steps["info"], { type: "DRIVER", pluginApiVersions: ["v0.1.0"], name });
    t.is(steps["schema"] as unknown, true);
    if (!tls) t.is(steps["reattached"] as unknown, true);
    t.like(steps["fingerprint"], { health: "HEALTHY" });
    t.like(steps["handle"], { version: 1, state: "RUNNING", config: { id: "alloc/web/1" } });
    t.regex(steps["again"] as unknown as string, /already started/);
    t.deepEqual(steps["exit"], { result: { exitCode: 5 } });
    const { task: status } = steps["inspected"] as { task: Record<string, unknown> };
    t.like(status, { state: "EXITED", result: { exitCode: 5 } });
    t.truthy(status["startedAt"]);
    t.truthy(status["completedAt"]);
    t.regex(steps["unknown"] as unknown as string, /code = Unknown desc = task not found for given id/);
    t.like(steps["ended"], { exited: true, forced: false });
    t.true(Number(steps["ended"]?.["ms"]) < 1_900, "it exits by itself, before it would be killed");
    t.is(steps["logged"] as unknown, true);
  });
}
