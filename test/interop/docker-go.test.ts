// Docker's Go client, unmodified: the same walk through its swarm calls at a stock manager and at ours; each result must be equal.
import { execFile } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import anyTest from "ava";
import { engineMissing } from "../fixtures/docker-engine.ts";
import { labMissing } from "../fixtures/lab.ts";
import { startManager, tempDir } from "../fixtures/muster.ts";
import { walkBoth } from "../fixtures/stock-beside.ts";
import { patient } from "../support/slowness.ts";
import { peerPath, peersMissing } from "./go/peers.ts";

const missing = engineMissing() ?? labMissing() ?? peersMissing("docker-client");
const test = missing === null ? anyTest.serial : anyTest.serial.skip;
const run = promisify(execFile);

/** The results that Docker's Go client prints, one in each line. */
async function walk(socket: string, what: string): Promise<readonly string[]> {
  const { stdout } = await run(peerPath("docker-client"), [socket, what], { timeout: patient(120_000) });
  return stdout.trim().split("\n");
}

/** A stack as Portainer deploys it: with Docker's command. */
const stack = {
  version: "3.8",
  services: {
    web: {
      image: "bb:1",
      command: ["sh", "-c", "echo begun; exec sleep 1000"],
      environment: { A: "1" },
      deploy: { replicas: 2 },
    },
  },
};

test(`the calls of Docker's Go client, and Portainer's with it, have a stock manager's results${missing === null ? "" : `: ${missing}`}`, async (t) => {
  t.timeout(patient(300_000));
  const file = join(tempDir(t, "portainer"), "compose.yaml");
  writeFileSync(file, JSON.stringify(stack));
  const { ours, stock } = await walkBoth(t, async (socket, node) => {
    const walked = await walk(socket, node);
    await run("docker", ["-H", `unix://${socket}`, "stack", "deploy", "--resolve-image", "never", "-c", file, "shop"]);
    return [...walked, ...(await walk(socket, "portainer"))];
  });
  t.true(stock.length >= 70, stock.join("\n"));
  t.deepEqual(ours, stock);
});

test("cluster volumes are created, updated and removed by Docker's Go client", async (t) => {
  const manager = await startManager(t);
  await manager.ready();
  const walked = await walk(join(manager.dataDir, "docker.sock"), "volumes");
  const lines = new Map(
    walked.map((line) => JSON.parse(line) as [string, ...unknown[]]).map(([name, ...values]) => [name, values]),
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
