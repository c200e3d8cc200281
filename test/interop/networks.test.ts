// Networks of stock engines under our manager: each engine is a machine with its own network, so that an overlay spans real
// machines.
import anyTest from "ava";
import { engineMissing, type DockerEngine } from "../fixtures/docker-engine.ts";
import { hasIpvs, labMissing } from "../fixtures/lab.ts";
import { labSwarm, running, site, words } from "../fixtures/swarm.ts";
import { until } from "../fixtures/until.ts";
import { patient } from "../support/slowness.ts";

const missing = engineMissing() ?? labMissing();
const test = missing === null ? anyTest.serial : anyTest.serial.skip;

const ask = "printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 2";
const everywhere = "web on engine1, web on engine2";

function both<Item>(items: readonly Item[]): readonly Item[] | false {
  return items.length === 2 && items;
}

/** The answers of the web tasks that a task on this engine finds by `tasks.web`. */
async function heardOn(engine: DockerEngine): Promise<string> {
  const addresses = await engine.addressesOf("web", "tasks.web");
  const answers = await Promise.all(
    addresses.map(async (address) => (await engine.inTask("web", `${ask} ${address} 80`)).split("\n").at(-1) ?? ""),
  );
  return answers.toSorted().join(", ");
}

test("replicas on two engines reach each other by name over an overlay network, also after one was replaced", async (t) => {
  t.timeout(patient(300_000));
  const { manager, members } = await labSwarm(t);
  const [first, second] = members;
  await manager.muster(...words("network create --driver overlay back"));
  await manager.muster(...words("service create --detach --name web --network back --replicas 2"), ...site);
  const tasks = await until("2 running tasks", async () => both(await running(manager, "web")));
  t.is(new Set(tasks.map(({ nodeId }) => nodeId)).size, 2);
  // The engines gossip about names, which appear a moment after the tasks.
  for (const { engine } of members)
    await until("both tasks by name", async () => (await heardOn(engine)) === everywhere);
  const [there] = tasks.filter(({ nodeId }) => nodeId === second.nodeId);
  t.regex(await first.engine.inTask("web", `${ask} web.${there?.slot}.${there?.id} 80`), /web on engine2/);
  for (const { engine } of members)
    t.is((await engine.addressesOf("web", "web")).length, 1, "the service's name is its virtual IP");

  await second.engine.docker("rm", "-f", `web.${there?.slot}.${there?.id}`);
  await until("another task", async () => {
    const now = both(await running(manager, "web"));
    return now && now.every(({ id }) => id !== there?.id);
  });
  await until(
    "the new task by name, and no longer the old one",
    async () => (await heardOn(first.engine)) === everywhere,
  );

  if (hasIpvs()) t.regex(await first.engine.inTask("web", `${ask} web 80`), /web on engine[12]/);
  else t.log("this kernel has no ip_vs: engines cannot balance a virtual IP here");
});

test("a restarted engine finds its peers again, and a standalone container joins an attachable network", async (t) => {
  t.timeout(patient(300_000));
  const { manager, members } = await labSwarm(t);
  const [first, second] = members;
  await manager.muster(...words("network create --driver overlay --attachable back"));
  await manager.muster(...words("service create --detach --name web --mode global --network back"), ...site);
  const before = await until("2 running tasks", async () => both(await running(manager, "web")));
  const old = before.map(({ id }) => id);

  await first.engine.stop();
  await first.engine.start();
  await until(
    "a new task on the restarted engine",
    async () =>
      both(await running(manager, "web")) && (await running(manager, "web")).some(({ id }) => !old.includes(id)),
    40_000,
  );
  for (const { engine } of members)
    await until("both tasks by name", async () => (await heardOn(engine)) === everywhere, 40_000);

  const alone = words("run --rm --network back bb:1 sh -c");
  const found = await second.engine.docker(...alone, "nslookup tasks.web; nslookup web");
  t.is(found.match(/^Address(?: \d+)?: 10\./gm)?.length, 3, found);
  const refused = await t.throwsAsync(second.engine.docker(...words("run --rm --network ingress bb:1 true")));
  t.regex(refused.message, /ingress|attachable/i);
  await until(
    "the container's task to be removed",
    async () => !/attach/.test(await manager.muster("node", "ps", second.nodeId)),
  );
});

test("a host-mode port answers on each engine that runs a task, an ingress port on every engine where the kernel has ip_vs", async (t) => {
  t.timeout(patient(300_000));
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
    // A container is RUNNING before its program listens.
    const answer = await until("an answer", () => lab.hub.fetch(`http://${machine.address}:8080/`));
    t.is(answer, `site on ${machine.name}`);
  }
  const [published] = await running(manager, "one");
  const host = members.find(({ nodeId }) => nodeId === published?.nodeId);
  for (const { engine, machine } of members) {
    const containers = await engine.docker("network", "inspect", "ingress", "--format", "{{json .Containers}}");
    t.true(containers.includes("ingress-sbox"), "every engine is on the ingress network with its own address");
    if (hasIpvs()) t.is(await lab.hub.fetch(`http://${machine.address}:9090/`), `one on ${host?.machine.name}`);
  }
  if (!hasIpvs()) t.log("this kernel has no ip_vs: engines cannot balance an ingress port here");
});
