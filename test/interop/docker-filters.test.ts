// Filters of the Engine API's lists: the same questions to a stock manager and to ours must find the same objects.
import { join } from "node:path";
import anyTest from "ava";
import { engineMissing, startEngine } from "../fixtures/docker-engine.ts";
import { ask } from "../fixtures/engine-api.ts";
import { startManager } from "../fixtures/muster.ts";
import { until } from "../fixtures/until.ts";
import { filteredLists, filteredObjects } from "../support/docker-filters.ts";

const test = engineMissing() === null ? anyTest.serial : anyTest.serial.skip;

type Found = Readonly<Record<string, unknown>> & {
  readonly ID?: string;
  readonly Id?: string;
  readonly Name?: string;
  readonly Scope?: string;
  readonly Slot?: number;
  readonly ServiceID?: string;
  readonly Spec?: { readonly Name?: string };
};

/**
 * A stock manager finds only networks of exactly the name, unless its own engine has them, and does not know which are in
 * use. An engine has no filter for nodes.
 */
const meantToDiffer = new Set(
  [
    ...["", "net-a", "et-a", "^net-a$", "net-a."].map((name) => ({ name: [name] })),
    ...["true", "1", "false", "0"].map((dangling) => ({ dangling: [dangling] })),
  ]
    .map((filters) => `/networks ${JSON.stringify(filters)}`)
    .concat('/containers/json {"node":["absent"]}'),
);

test("each filter of a list finds what a stock manager finds", async (t) => {
  const [engine, manager] = await Promise.all([startEngine(t), startManager(t)]);
  await engine.docker("swarm", "init", "--listen-addr", `${engine.host}:2399`, "--advertise-addr", engine.host);
  await manager.ready();
  const [stock, ours] = [join(engine.dir, "docker.sock"), join(manager.dataDir, "docker.sock")];
  const { ApiVersion } = JSON.parse((await ask(stock, { method: "GET", path: "/version" })).text) as {
    ApiVersion: string;
  };
  const list = async (socket: string, path: string): Promise<readonly Found[]> =>
    JSON.parse((await ask(socket, { method: "GET", path: `/v${ApiVersion}${path}` })).text) as readonly Found[];

  for (const socket of [stock, ours]) {
    for (const request of filteredObjects) {
      const { status, text } = await ask(socket, request);
      t.is(status, 201, `${request.path} ${text}`);
    }
    await until("the tasks", async () => (await list(socket, "/tasks")).length === 3);
  }
  const namesOf = async (socket: string): Promise<ReadonlyMap<string, string>> => {
    const named = new Map<string, string>();
    for (const noun of ["services", "secrets", "configs", "networks"])
      for (const { ID, Id, Name, Spec } of await list(socket, `/${noun}`))
        named.set((ID ?? Id) as string, (Spec?.Name ?? Name) as string);
    for (const { ID } of await list(socket, "/nodes")) named.set(ID as string, "the node");
    for (const { ID, ServiceID = "", Slot = 0 } of await list(socket, "/tasks"))
      named.set(ID as string, `${named.get(ServiceID)}.${Slot}`);
    return named;
  };
  const names = new Map([
    [stock, await namesOf(stock)],
    [ours, await namesOf(ours)],
  ]);
  const objects = {
    "{service}": "web",
    "{secret}": "known",
    "{config}": "known",
    "{network}": "net-a",
    "{node}": "the node",
  };
  const idOf = (socket: string, wanted: string, path: string): string =>
    [...(names.get(socket) ?? [])].find(([, name]) => name === wanted)?.[0] ?? `no ${wanted} in ${path}`;
  const answer = async (socket: string, path: string, filters: object): Promise<string> => {
    const given = Object.entries(objects).reduce(
      (text, [place, name]) => text.replaceAll(place, idOf(socket, name, path)),
      JSON.stringify(filters),
    );
    const query = `filters=${encodeURIComponent(given)}`;
    const { status, text } = await ask(socket, { method: "GET", path: `/v${ApiVersion}${path}?${query}` });
    if (status !== 200) return `${status} ${text.trim()}`;
    // Networks of the engine itself are not ours.
    const listed = JSON.parse(text) as readonly Found[] | { readonly Volumes: readonly Found[] | null };
    const found = "Volumes" in listed ? (listed.Volumes ?? []) : listed;
    return found
      .filter(({ Scope = "swarm" }) => Scope === "swarm")
      .map(({ ID, Id }) => names.get(socket)?.get((ID ?? Id) as string) ?? "unknown")
      .toSorted()
      .join(", ");
  };
  const different: string[] = [];
  for (const [path, all] of Object.entries(filteredLists))
    for (const filters of all) {
      const [expected, found] = [await answer(stock, path, filters), await answer(ours, path, filters)];
      const question = `${path} ${JSON.stringify(filters)}`;
      if ((expected === found) === !meantToDiffer.has(question)) continue;
      different.push(question, `  stock: ${expected}`, `  ours:  ${found}`);
    }
  t.deepEqual(different, []);
});
