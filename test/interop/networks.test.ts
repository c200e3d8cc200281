// Networks of stock engines under our manager: each engine is a machine with a network of its own, so that an overlay
// between them is one.
import anyTest from "ava";
import { engineMissing } from "../fixtures/docker-engine.ts";
import { hasIpvs, labMissing } from "../fixtures/lab.ts";
import { labSwarm, running, site, words } from "../fixtures/swarm.ts";
import { until } from "../fixtures/until.ts";

const missing = engineMissing() ?? labMissing();
const test = missing === null ? anyTest.serial : anyTest.serial.skip;

const ask = "printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 2";

test("replicas on two engines reach each other by name over an overlay network, also after one was replaced", async (t) => {
  t.timeout(150_000);
  const { manager, members } = await labSwarm(t);
  const [first, second] = members;
  await manager.muster(...words("network create --driver overlay back"));
  await manager.muster(...words("service create --detach --name web --network back --replicas 2"), ...site);
  const tasks = await until("2 running tasks", async () => both(await running(manager, "web")));

  t.is(new Set(tasks.map(({ nodeId }) => nodeId)).size, 2);

  /** What the task on one engine gets from the one on the other, by the task's name. */
  const over = async (from: (typeof members)[0], to: (typeof members)[0]): Promise<string> => {
    const task = (await running(manager, "web")).find(({ nodeId }) => nodeId === to.nodeId);
    return from.engine.inTask("web", `${ask} web.${task?.slot}.${task?.id} 80`);
  };
  // The engines gossip about names: they come a moment after the tasks.
  await until("the second engine's task by name", async () => /web on engine2/.test(await over(first, second)));
  await until("the first engine's task by name", async () => /web on engine1/.test(await over(second, first)));

  for (const { engine } of members) {
    t.is((await engine.addressesOf("web", "tasks.web")).length, 2);
    t.is((await engine.addressesOf("web", "web")).length, 1, "the service's name is its virtual IP");
  }

  const gone = tasks.find(({ nodeId }) => nodeId === second.nodeId);
  await second.engine.docker("rm", "-f", `web.${gone?.slot}.${gone?.id}`);
  await until("another task", async () => {
    const now = both(await running(manager, "web"));
    return now && now.every(({ id }) => id !== gone?.id);
  });
  await until("the new task by name", async () => /web on engine2/.test(await over(first, second)));
  await until("the old name to be gone", async () => (await first.engine.addressesOf("web", "tasks.web")).length === 2);

  if (hasIpvs()) {
    t.regex(await first.engine.inTask("web", `${ask} web 80`), /web on engine[12]/);
  } else t.log("this kernel has no ip_vs: engines cannot balance a virtual IP here");
});

test("a host-mode port answers on each engine that runs a task, an ingress port on every engine where the kernel has ip_vs", async (t) => {
  t.timeout(150_000);
  const { manager, members, lab } = await labSwarm(t);
  await manager.muster(
    ...words("service create --detach --name site --mode global --publish mode=host,target=80,published=8080"),
    ...site,
  );
  await manager.muster(...words("service create --detach --name one --publish 9090:80"), ...site);
  await until(
    "all tasks",
    async () => both(await running(manager, "site")) && (await running(manager, "one")).length === 1,
  );
  for (const { machine } of members) {
    // A container runs before what it runs listens.
    const answer = await until("an answer", () => lab.hub.fetch(`http://${machine.address}:8080/`));
    t.is(answer, `site on ${machine.name}`);
  }

  const [published] = await running(manager, "one");
  const host = members.find(({ nodeId }) => nodeId === published?.nodeId);
  for (const { engine, machine } of members) {
    const containers = await engine.docker("network", "inspect", "ingress", "--format", "{{json .Containers}}");
    t.true(containers.includes("ingress-sbox"), "every engine is on the ingress network with an address of its own");
    if (hasIpvs()) t.is(await lab.hub.fetch(`http://${machine.address}:9090/`), `one on ${host?.machine.name}`);
  }
  if (!hasIpvs()) t.log("this kernel has no ip_vs: engines cannot balance an ingress port here");
});

function both<Item>(items: readonly Item[]): readonly Item[] | false {
  return items.length === 2 && items;
}
