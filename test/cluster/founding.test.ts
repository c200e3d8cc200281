// A cluster is created once: a manager that joins, or that was a member, never creates another one.
import { readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { createService, serviceNames, sleepers } from "../fixtures/control-client.ts";
import { runMuster, startManager, tempDir, type Ran, type TestManager } from "../fixtures/muster.ts";
import { natsServer } from "../fixtures/nats-server.ts";
import { patient } from "../support/slowness.ts";

/** Starts it once more, expecting failure; `more` is appended to its arguments. */
function startedAgain(manager: TestManager, ...more: readonly string[]): Promise<Ran> {
  return runMuster([...manager.process.args, ...more]);
}

function refused(t: ExecutionContext, ran: Ran, sentence: RegExp): void {
  t.is(ran.code, 1, ran.stderr);
  t.regex(ran.stderr.trimEnd().split("\n").at(-1) ?? "", sentence);
}

test.serial("a manager whose own NATS has lost its storage, or has another's, creates no second cluster", async (t) => {
  t.timeout(patient(300_000));
  const manager = await startManager(t);
  await createService(manager, sleepers("web", 0));
  const [ca, keys] = [await manager.muster("ca"), readFileSync(join(manager.dataDir, "keys"), "utf8")];
  await manager.process.end();
  const { server } = await natsServer(t);
  const empty = server.url.replace("//", `//${server.user}:${server.pass}@`);
  refused(
    t,
    await startedAgain(manager, "--nats", empty),
    /^muster: this manager has joined a cluster, but this NATS has none: set --nats to the NATS of its cluster, or move .* with --nats-move;/,
  );

  // Its data is untouched: with its own NATS it continues.
  t.is(readFileSync(join(manager.dataDir, "keys"), "utf8"), keys);
  manager.process.start();
  await manager.ready();
  t.is(await manager.muster("ca"), ca);
  t.deepEqual(await serviceNames(manager), ["web"]);
  await manager.process.end();

  const storage = join(manager.dataDir, "nats", "nats", "jetstream");
  rmSync(storage, { recursive: true });
  for (let time = 0; time < 2; time += 1)
    refused(
      t,
      await startedAgain(manager),
      /^muster: this manager has joined a cluster, but this NATS has none: restore .*\/nats from a copy/,
    );
  t.is(readFileSync(join(manager.dataDir, "keys"), "utf8"), keys);
});

test.serial("a joining manager creates nothing in the NATS of another cluster", async (t) => {
  t.timeout(patient(300_000));
  const manager = await startManager(t);
  const { server } = await natsServer(t);
  const nats = server.url.replace("//", `//${server.user}:${server.pass}@`);
  const joining = [
    "manager",
    "--data-dir",
    tempDir(t, "joining"),
    "--listen",
    "127.0.0.1:1",
    "--join",
    manager.address,
    "--token",
    await manager.muster("token", "manager"),
  ];
  refused(
    t,
    await runMuster([...joining, "--nats", nats]),
    /^muster: this NATS has no cluster: set --nats to the NATS of the cluster at 127\.0\.0\.1:\d+$/,
  );
});
