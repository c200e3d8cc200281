// Networks of stock engines under our manager: each engine is a machine with a network of its own.
import anyTest, { type ExecutionContext } from "ava";
import { engineMissing, startEngine, type DockerEngine } from "../fixtures/docker-engine.ts";
import { hasIpvs, labMissing, startLab } from "../fixtures/lab.ts";
import { startManager } from "../fixtures/muster.ts";
import { joined, running, site, words } from "../fixtures/swarm.ts";
import { until } from "../fixtures/until.ts";

const missing = engineMissing() ?? labMissing();
const test = missing === null ? anyTest.serial : anyTest.serial.skip;

async function setUp(t: ExecutionContext) {
  t.timeout(150_000);
  const lab = startLab(t, 2);
  const [manager, ...engines] = await Promise.all([
    startManager(t, { on: lab.hub }),
    ...lab.machines.map((machine) => startEngine(t, machine)),
  ]);
  await Promise.all(engines.map((engine) => joined(manager, engine)));
  return { lab, manager, engines: engines as [DockerEngine, DockerEngine] };
}

test("two replicas on two engines reach each other by name over an overlay network, and the world reaches them by host port", async (t) => {
  const { lab, manager, engines } = await setUp(t);
  await manager.muster("network", "create", "--driver", "overlay", "back");
  await manager.muster(
    ...words("service create --detach --name web --network back --replicas 2 --publish published=9090,target=80"),
    ...words("--publish mode=host,target=80,published=8080"),
    ...site,
  );
  const tasks = await until("2 running tasks", async () => {
    const found = await running(manager, "web");
    return found.length === 2 && found;
  });
  t.is(new Set(tasks.map(({ nodeId }) => nodeId)).size, 2);
  for (const { name, address } of lab.machines) {
    t.is(await lab.hub.fetch(`http://${address}:8080/`), `web on ${name}`);
  }
  t.log(engines.length, hasIpvs());
});
