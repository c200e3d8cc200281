// The samples of the reference (docs/reference/juju-api-protocol.md §9), each sent byte for byte except for names and
// passwords, and answered on the wire as documented.
import { readFileSync } from "node:fs";
import test from "ava";
import { machineId } from "../../edges/juju/entities/names.ts";
import { modelUuid } from "../../edges/juju/model.ts";
import type { LoginName } from "../../runtime/ports/json-api.ts";
import { setPassword } from "../../actors/json/users.ts";
import { workerNode } from "../support/control.ts";
import { jsonWorld, password, type TestClient } from "../support/json-api.ts";
import { call } from "../support/manager.ts";

const page = readFileSync(new URL("../../docs/reference/juju-api-protocol.md", import.meta.url), "utf8");
const section = page.slice(page.indexOf("## 9. Samples"), page.indexOf("## 10."));

/** The texts in backticks in the row of that name, in order. */
function sample(name: string): readonly string[] {
  const row = section.split("\n").find((line) => line.startsWith(`| ${name} |`));
  if (row === undefined) throw new Error(`the reference has no sample ${name}`);
  return [...row.matchAll(/`([^`]+)`/g)].map(([, bytes = ""]) => bytes);
}

/** Sends it unchanged and returns the bytes of the answer. */
async function exchange(client: TestClient, text: string): Promise<string> {
  const came = new Promise<string>((resolve) =>
    client.socket.once("message", (data: Buffer) => resolve(data.toString("utf8"))),
  );
  client.send(text);
  // A frame that the client has already received is returned first.
  await client.next();
  return came;
}

test("V0 login", async (t) => {
  const { addUser, connect, store } = await jsonWorld(t, { facades: "all" });
  await addUser("admin");
  const [asked = "", wanted = ""] = sample("V0 login");
  const answer = await exchange(await connect(), asked.replace('"x"', JSON.stringify(password)));
  const keys = (text: string): unknown => {
    const { Response: response, ...rest } = JSON.parse(text) as { Response: Record<string, unknown> };
    return { ...rest, keys: Object.keys(response) };
  };
  t.deepEqual(keys(answer), keys(wanted));
  const { Response: told } = JSON.parse(answer) as { Response: { EnvironTag: string; Facades: { Name: string }[] } };
  t.is(told.EnvironTag, `environment-${modelUuid([...store.all("cluster")][0]?.id ?? "")}`);
  t.deepEqual(
    told.Facades.find(({ Name }) => Name === "Client"),
    { Name: "Client", Versions: [0] } as never,
  );
});

test("V1 login, rejected, watch all, next and stop while one waits", async (t) => {
  const { addUser, connect, clock } = await jsonWorld(t, { facades: "all" });
  await addUser("admin");
  const client = await connect();
  const [login = ""] = sample("V1 login");
  t.is(await exchange(client, login), sample("V1 refused")[0] ?? "");
  const { response } = JSON.parse(await exchange(client, login.replace('"x"', JSON.stringify(password)))) as {
    response: Record<string, unknown>;
  };
  t.is(response["server-version"], "3.5.2");

  const [watch = "", watching = ""] = sample("Watch all");
  t.is(await exchange(client, watch), watching);
  const [next = "", told = ""] = sample("Next (libjuju)");
  t.true((await exchange(client, next)).startsWith(told.slice(0, told.indexOf("[[") + 1)));

  const [stopped = "", stop = ""] = sample("Stop while waiting");
  client.send(next.replace('"request-id":5', '"request-id":6'));
  client.send('{"request-id":8,"type":"AllWatcher","version":3,"id":"1","request":"Stop"}');
  const both = [JSON.stringify(await client.next()), JSON.stringify(await client.next())];
  t.deepEqual(both.toSorted(), [stopped, stop].toSorted());
  clock.advance(1);
});

test("Seed watch", async (t) => {
  const { connect, env, seed, passwords, clock } = await jsonWorld(t, { facades: "all" });
  const node = workerNode("n99");
  seed("node", node);
  const name: LoginName = { kind: "machine", nodeId: node.id };
  await setPassword(env, passwords, name, password, call());
  const number = machineId(node.id);
  const client = await connect();
  await client.login(`machine-${number}`);
  const [asked = "", wanted = ""] = sample("Seed watch");
  const answer = JSON.parse(await exchange(client, asked.replace('"99"', JSON.stringify(number)))) as {
    Response: Record<string, unknown>;
  };
  // Also under its earlier name: clients skip keys that they do not know.
  t.is(answer.Response["EntityWatcherId"], "1");
  delete answer.Response["EntityWatcherId"];
  t.is(JSON.stringify(answer), wanted);

  // Its Next waits for a later change.
  client.send({ RequestId: 1001, Type: "NotifyWatcher", Id: "1", Request: "Next" });
  seed("node", workerNode("n99", { role: 1 }));
  const told = client.next();
  for (let at = 0; at < 50; at += 1) {
    await clock.run({ untilMs: clock.now() + 10 });
    await new Promise((resolve) => setImmediate(resolve));
  }
  t.deepEqual(await told, { RequestId: 1001, Response: {} });
});

test("every sample of the reference is tested here", (t) => {
  const rows = section.split("\n").flatMap((line) => /^\| ([^|`]+) \| `/.exec(line)?.[1] ?? []);
  const replayed = [
    "V0 login",
    "V1 login",
    "V1 refused",
    "Watch all",
    "Next (libjuju)",
    "Stop while waiting",
    "Seed watch",
  ];
  t.deepEqual(rows.toSorted(), replayed.toSorted());
});
