// JetStream disabled while a manager uses it, in the whole server or for its account: the trouble says which.
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import test from "ava";
import { createTroubles } from "../../actors/manager/troubles.ts";
import { reportLogTroubles } from "../../processes/log-troubles.ts";
import { Trouble_Kind } from "../../proto/gen/messages.ts";
import { connectNats } from "../../runtime/nats/connection.ts";
import { SystemClock } from "../../runtime/system/clock.ts";
import { freePort } from "../fixtures/ports.ts";
import { natsBinaries, signal, temporaryFolder, testTelemetry, until } from "../fixtures/nats-server.ts";
import { patient } from "../support/slowness.ts";

interface Off {
  readonly what: string;
  /** The server's configuration except its port. */
  configOf(isOn: boolean, storage: string): string;
  readonly sentence: RegExp;
  /** The fix that the sentence recommends. */
  readonly remedy: "start again" | "reload";
}

const ways: readonly Off[] = [
  {
    what: "in the whole server",
    configOf: (isOn, storage) =>
      `authorization { user: a, password: b }\n${isOn ? `jetstream { store_dir: ${JSON.stringify(storage)} }` : ""}`,
    sentence: /^the nats-server has disabled JetStream.*: restart it$/,
    remedy: "start again",
  },
  {
    what: "for the account",
    configOf: (isOn, storage) =>
      `accounts { A: { jetstream: ${isOn ? "enabled" : "disabled"}, users: [{ user: a, password: b }] } }
jetstream { store_dir: ${JSON.stringify(storage)} }`,
    sentence: /^NATS has JetStream disabled for the account of this manager: enable it/,
    remedy: "reload",
  },
];

for (const binary of natsBinaries)
  for (const { what, configOf, remedy, sentence } of ways)
    test.serial(`JetStream disabled ${what} is reported as such until it is enabled again (${binary})`, async (t) => {
      t.timeout(patient(300_000));
      const folder = await temporaryFolder(t);
      const telemetry = await testTelemetry();
      const config = join(folder, "server.conf");
      const port = await freePort();
      const write = (isOn: boolean): Promise<void> =>
        writeFile(config, `listen: "127.0.0.1:${port}"\n${configOf(isOn, join(folder, "storage"))}\n`);
      await write(true);
      const start = (): ChildProcess => spawn(binary, ["-c", config], { stdio: "ignore" });
      const end = async (server: ChildProcess): Promise<void> => {
        const ended = once(server, "exit");
        server.kill("SIGKILL");
        await ended;
      };
      let server = start();
      t.teardown(() => end(server));
      const link = await connectNats({
        servers: [`nats://127.0.0.1:${port}`],
        user: "a",
        pass: "b",
        name: "test",
        telemetry,
        firstConnectMs: 60_000,
      });
      t.teardown(() => link.close());
      const troubles = createTroubles({ clock: new SystemClock(), telemetry });
      const reporting = reportLogTroubles(troubles, link, null);
      t.teardown(() => reporting.stop());
      const asking = setInterval(() => void link.log.bounds(500), 300);
      t.teardown(() => clearInterval(asking));
      const said = (): string => troubles.all().find(({ kind }) => kind === Trouble_Kind.LOG_OFF)?.sentence ?? "";
      t.not(await link.log.bounds(10_000), null);
      t.is(said(), "");

      await write(false);
      signal(server.pid ?? 0, "SIGHUP");
      await until("the trouble", () => said() !== "");
      t.regex(said(), sentence);
      t.is(troubles.cause(), said(), "it blocks");

      await write(true);
      if (remedy === "reload") signal(server.pid ?? 0, "SIGHUP");
      else {
        await end(server);
        server = start();
      }
      await until("its end", () => said() === "");
      await until("the log", async () => (await link.log.bounds(1_000)) !== null);
    });
