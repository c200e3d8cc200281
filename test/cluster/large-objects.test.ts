// The largest secrets and configs, on a nats-server with default settings (messages of 1 MiB): leader and followers accept and
// reject the same.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import test from "ava";
import { status } from "../fixtures/control-client.ts";
import { runMuster, startManager, tempDir, type TestManager } from "../fixtures/muster.ts";
import { freePort } from "../fixtures/ports.ts";
import { natsBinaries } from "../fixtures/nats-server.ts";
import { until } from "../fixtures/until.ts";
import { patient } from "../support/slowness.ts";

/** SwarmKit's limits (exclusive): bytes of a config and of a secret. */
const configBytesLimit = 1_024_000;
const secretBytesLimit = 512_000;

for (const binary of natsBinaries) {
  test.serial(
    `the largest secret and config pass through leader and follower, and larger ones do not (${binary})`,
    async (t) => {
      t.timeout(patient(300_000));
      const port = await freePort();
      const folder = tempDir(t, "large");
      const server = spawn(binary, ["-js", "-sd", join(folder, "nats"), "-a", "127.0.0.1", "-p", `${port}`], {
        stdio: "ignore",
      });
      t.teardown(async () => {
        if (server.exitCode === null && server.signalCode === null && server.kill("SIGKILL"))
          await once(server, "exit");
      });
      const nats = `nats://127.0.0.1:${port}`;
      const leader = await startManager(t, { nats });
      const follower = await startManager(t, { nats, join: leader });
      const { managerId } = await status(leader);
      await until("a follower to know its leader", async () => (await status(follower)).leaderId === managerId);

      const file = (bytes: number): string => {
        const path = join(folder, `${bytes}`);
        // Incompressible.
        writeFileSync(path, Buffer.from(Array.from({ length: bytes }, (_, at) => (at * 7919 + (at >> 8)) & 0xff)));
        return path;
      };
      const create = (through: TestManager, kind: string, ...args: readonly string[]) =>
        runMuster([kind, "create", ...args, "--host", `unix://${join(through.dataDir, "control.sock")}`]);
      for (const [kind, limit] of [
        ["config", configBytesLimit],
        ["secret", secretBytesLimit],
      ] as const) {
        const told: string[] = [];
        for (const [name, through] of [
          ["by-leader", leader],
          ["by-follower", follower],
        ] as const) {
          const largest = await create(through, kind, `${kind}-${name}`, file(limit - 1));
          t.is(largest.code, 0, `${kind} ${name}: ${largest.stderr}`);
          const labelled = await create(
            through,
            kind,
            "--label",
            `note=${"x".repeat(15_000)}`,
            `labelled-${kind}-${name}`,
            file(limit - 1),
          );
          t.is(labelled.code, 0, `${kind} ${name} with labels: ${labelled.stderr}`);
          const above = await create(through, kind, `too-large-${name}`, file(limit));
          t.not(above.code, 0);
          told.push(above.stderr);
          // The rest of an object has a limit too, which only the ledger enforces.
          const label = Array.from({ length: 3 }, (_, at) => ["--label", `n${at}=${"x".repeat(100_000)}`]).flat();
          const heavy = await create(through, "config", ...label, `heavy-${kind}`, file(configBytesLimit - 1));
          t.not(heavy.code, 0);
          told.push(heavy.stderr.replace(/\d[\d,]*/g, "N"));
        }
        t.regex(told[0] ?? "", new RegExp(`less than ${limit} bytes`));
        t.regex(told[1] ?? "", /a transaction can hold only N: use less data or shorter labels/);
        t.deepEqual(told.slice(2), told.slice(0, 2), "the same error from both");
      }
      // The log has all of it, and both managers read it.
      for (const manager of [leader, follower]) {
        const names = await manager.muster("config", "ls", "--format", "{{.Name}}");
        t.is(names.split("\n").length, 4, names);
      }
    },
  );
}
