// Docker's Go client, unmodified: the same walk through its swarm calls at a stock manager and at ours; each result must be equal.
import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import anyTest from "ava";
import { engineMissing, startEngine } from "../fixtures/docker-engine.ts";
import { startManager } from "../fixtures/muster.ts";
import { freePort } from "../fixtures/ports.ts";
import { until } from "../fixtures/until.ts";
import { patient } from "../support/slowness.ts";
import { peerPath, peersMissing } from "./go/peers.ts";

const missing = engineMissing() ?? peersMissing("docker-client");
const test = missing === null ? anyTest.serial : anyTest.serial.skip;
const run = promisify(execFile);

/** Ids differ between the two clusters. */
function comparable(output: string): readonly string[] {
  return output
    .trim()
    .replaceAll(/\b[0-9a-z]{25}\b/g, "ID")
    .split("\n");
}

test(`the calls of Docker's Go client have a stock manager's results${missing === null ? "" : `: ${missing}`}`, async (t) => {
  t.timeout(patient(300_000));
  const [engine, worker, manager] = await Promise.all([startEngine(t), startEngine(t), startManager(t)]);
  const listen = `${engine.host}:${await freePort()}`;
  await engine.docker("swarm", "init", "--listen-addr", listen, "--advertise-addr", engine.host);
  await manager.ready();
  await worker.join(await manager.muster("token", "worker"), manager.address);
  const walk = async (socket: string, role: string): Promise<readonly string[]> => {
    const nodes = ["-H", `unix://${socket}`, "node", "ls", "-q", "--filter", `role=${role}`];
    let node = "";
    await until("a node that runs tasks", async () => (node = (await run("docker", nodes)).stdout.trim()) !== "");
    return comparable((await run(peerPath("docker-client"), [socket, node], { timeout: patient(120_000) })).stdout);
  };
  const expected = await walk(join(engine.dir, "docker.sock"), "manager");
  t.true(expected.length >= 37, expected.join("\n"));
  t.deepEqual(await walk(join(manager.dataDir, "docker.sock"), "worker"), expected);
});

test("cluster volumes are created, updated and removed by Docker's Go client", async (t) => {
  const manager = await startManager(t);
  await manager.ready();
  const socket = join(manager.dataDir, "docker.sock");
  const { stdout } = await run(peerPath("docker-client"), [socket, "volumes"], { timeout: patient(60_000) });
  const lines = new Map(
    comparable(stdout)
      .map((line) => JSON.parse(line) as [string, ...unknown[]])
      .map(([name, ...values]) => [name, values]),
  );
  const asked = lines.get("create")?.[5];
  t.deepEqual(lines.get("create")?.slice(0, 5), ["go-data", "hostpath", { o: "1" }, { a: "b" }, "global"]);
  t.truthy(asked);
  t.deepEqual(lines.get("created"), [true, asked], "the client reads the fields that it wrote");
  const daemon = "Error response from daemon:";
  const elsewhere =
    "local volumes belong to one engine, and this is a manager of a Muster cluster: create one with the engine of";
  t.deepEqual(Object.fromEntries([...lines].slice(2)), {
    twice: [["conflict"], `${daemon} rpc error: code = AlreadyExists desc = volume go-data already exists`],
    "no driver": [["invalid"], `${daemon} rpc error: code = InvalidArgument desc = driver must be specified`],
    local: [[], `${daemon} ${elsewhere} a node, or a cluster volume (--type with --driver)`],
    inspect: ["go-data", "pause"],
    list: [1, "go-data"],
    absent: [["not found"], `${daemon} volume go-absent not found`],
    "out of sequence": [["system"], `${daemon} rpc error: code = Unknown desc = update out of sequence`],
    "update absent": [["not found"], `${daemon} volume go-absent not found`],
    drained: ["g", "drain"],
    "remove absent": [["not found"], `${daemon} volume go-data not found`],
  });
});
