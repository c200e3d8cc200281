// A manager that fails to join leaves nothing behind: neither a node in the cluster nor an identity in its data dir.
import { writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { runMuster, startManager, tempDir, type TestManager } from "../fixtures/muster.ts";
import { natsServer } from "../fixtures/nats-server.ts";
import { freePort } from "../fixtures/ports.ts";
import { patient } from "../support/slowness.ts";

async function sharedNats(t: ExecutionContext): Promise<string> {
  const { server } = await natsServer(t);
  return server.url.replace("//", `//${server.user}:${server.pass}@`);
}

interface Joining {
  readonly dataDir: string;
  readonly nats: string;
  readonly address: string;
  readonly token: string;
  readonly port?: number;
}

/** Runs a manager until it exits; it is killed after two minutes. */
async function joins({ address, dataDir, nats, port, token }: Joining) {
  const listen = `127.0.0.1:${port ?? (await freePort())}`;
  const args = ["--data-dir", dataDir, "--listen", listen, "--nats", nats, "--join", address, "--token", token];
  return runMuster(["manager", ...args], { timeoutMs: 120_000 });
}

const nodesOf = async (manager: TestManager): Promise<readonly string[]> =>
  (await manager.muster("node", "ls", "--quiet")).split("\n");

test("a rejected manager join leaves no node, and the same data dir joins once the cause is fixed", async (t) => {
  t.timeout(patient(600_000));
  const nats = await sharedNats(t);
  const manager = await startManager(t, { nats });
  const other = await startManager(t, { nats: await sharedNats(t) });
  const before = await nodesOf(manager);
  t.is(before.length, 1);
  const dataDir = tempDir(t, "joining");
  const right = { address: manager.address, dataDir, nats, token: await manager.muster("token", "manager") };
  const taken = createServer();
  await new Promise<void>((resolve) => taken.listen(0, "127.0.0.1", resolve));
  t.teardown(() => taken.close());
  const file = join(tempDir(t, "file"), "file");
  writeFileSync(file, "");

  const cases: readonly (readonly [name: string, joining: Joining, sentence: RegExp])[] = [
    ["a NATS that does not answer", { ...right, nats: `nats://127.0.0.1:${await freePort()}` }, /NATS|nats-server/],
    ["an empty NATS", { ...right, nats: await sharedNats(t) }, /this NATS has no cluster/],
    ["another cluster's NATS", { ...right, nats: other.process.args.at(-1) as string }, /a cluster other than/],
    ["a manager that does not answer", { ...right, address: `127.0.0.1:${await freePort()}` }, /cannot join at/],
    [
      "another cluster's token",
      { ...right, token: await other.muster("token", "manager") },
      /is for a cluster other than/,
    ],
    ["a worker's token", { ...right, token: await manager.muster("token", "worker") }, /with a worker's token/],
    ["a data dir that is a file", { ...right, dataDir: file }, /./],
    ["a port in use", { ...right, port: (taken.address() as { port: number }).port }, /in use/],
  ];
  for (const [name, joining, sentence] of cases) {
    const { code, stderr } = await joins(joining);
    const said = stderr.split("\n").findLast((line) => line.startsWith("muster: ")) ?? stderr;
    t.log(`${name}: ${said}`);
    t.is(code, 1, name);
    t.regex(said, sentence, name);
    t.deepEqual(await nodesOf(manager), before, name);
  }
  t.is((await nodesOf(other)).length, 1);

  const joined = await startManager(t, { nats, join: manager, dataDir });
  t.is((await nodesOf(joined)).length, 2);
});
