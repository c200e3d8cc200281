// Watchers at one position share an answer, created once: the same text and the same bytes, whoever owns them; and each gets
// what it would get alone.
import test from "ava";
import fc from "fast-check";
import { machineView } from "../../edges/juju/entities/views.ts";
import type { Shape } from "../../edges/juju/shape.ts";
import { Entities, type Page } from "../../edges/juju/feed/entities.ts";
import { Shared } from "../../edges/juju/wire/shared.ts";
import { setPassword } from "../../actors/json/users.ts";
import { machineId } from "../../edges/juju/entities/names.ts";
import { RemoveUserRequest, UserRole } from "../../proto/gen/messages.ts";
import { workerNode } from "../support/control.ts";
import { jsonWorld, password, type TestClient } from "../support/json-api.ts";
import { textOfFrame } from "../support/json-frames.ts";
import { call } from "../support/manager.ts";
import { until } from "../fixtures/until.ts";
const model = (): string => "uuid";

interface Watching {
  readonly shape: Shape;
  cursor: number;
}

function told(entities: Entities, watching: Watching): Page["result"] | null {
  if (!entities.hasNews(watching.cursor, watching.shape)) return null;
  const { result, cursor } = entities.answer(watching.cursor, watching.shape, true);
  watching.cursor = cursor;
  return result;
}

const put = (entities: Entities, id: string, hostname: string): boolean =>
  entities.put({ ...machineView(workerNode(id)), hostname }, id);

test("F7: watchers at one position share an answer, and those of another shape or position have their own", (t) => {
  const entities = new Entities(model);
  put(entities, "a", "first");
  const atStart = entities.answer(0, "V1", true);
  t.is(entities.answer(0, "V1", true).result, atStart.result);
  const old = entities.answer(0, "V0", true).result;
  t.regex(old.text, /"Deltas".*"InstanceId"/);
  t.regex(atStart.result.text, /"deltas".*"instance-id"/);
  put(entities, "b", "second");
  const behind = entities.answer(0, "V1", true).result;
  const abreast = entities.answer(atStart.cursor, "V1", true).result;
  t.not(behind, atStart.result, "something has changed");
  t.is((JSON.parse(behind.text) as { deltas: unknown[] }).deltas.length, 2);
  t.is((JSON.parse(abreast.text) as { deltas: unknown[] }).deltas.length, 1);
});

test("F7: over random histories each watcher gets what it would get alone", (t) => {
  const watchers = 5;
  const step = fc.oneof(
    { weight: 3, arbitrary: fc.record({ at: fc.nat(4), name: fc.nat(3) }) },
    { weight: 1, arbitrary: fc.record({ gone: fc.nat(4) }) },
    { weight: 4, arbitrary: fc.record({ asks: fc.nat(watchers - 1) }) },
  );
  const begun = (): Watching[] =>
    Array.from({ length: watchers }, (_, at) => ({
      shape: at % 2 === 0 ? ("V1" as const) : ("V0" as const),
      cursor: 0,
    }));
  fc.assert(
    fc.property(fc.array(step, { maxLength: 80 }), (steps) => {
      const together = new Entities(model);
      const alone = Array.from({ length: watchers }, () => new Entities(model));
      const [watching, watchingAlone] = [begun(), begun()];
      for (const each of steps) {
        for (const entities of [together, ...alone]) {
          if ("at" in each) put(entities, `node${each.at}`, `name${each.name}`);
          if ("gone" in each) {
            const id = `node${each.gone}`;
            entities.remove("machine", machineView(workerNode(id)).id, id);
          }
        }
        if (!("asks" in each)) continue;
        const [shared, own] = [watching[each.asks] as Watching, watchingAlone[each.asks] as Watching];
        t.is(told(together, shared)?.text, told(alone[each.asks] as Entities, own)?.text);
        t.is(shared.cursor, own.cursor);
      }
    }),
    { numRuns: 200 },
  );
});

test("watchers at many different positions do not retain an answer each", (t) => {
  const entities = new Entities(model);
  // Some 2.5 million characters each time, of which a page is half.
  for (let at = 0; at < 40; at += 1) put(entities, `node${at}`, "x".repeat(500_000));
  const first = entities.answer(0, "V1", true).result;
  for (let cursor = 1; cursor < 10; cursor += 1) entities.answer(cursor, "V1", true);
  t.is(entities.answer(0, "V1", true).result, first);
  for (let cursor = 10; cursor < 35; cursor += 1) entities.answer(cursor, "V1", true);
  const again = entities.answer(0, "V1", true).result;
  t.not(again, first);
  t.is(again.text, first.text);
});

test("a message of any length is one frame, and all receivers share its end", (t) => {
  const beginning = '{"request-id":17,"response":';
  for (const bytes of [1, 96, 97, 98, 65_506, 65_507, 65_508, 200_000]) {
    const text = `"${"é".repeat(bytes / 2)}${"x".repeat(bytes % 2)}"`;
    const shared = new Shared(text);
    const [mine, ending] = shared.message(beginning);
    t.is(textOfFrame(Buffer.concat([mine, ending])), `${beginning}${text}}`);
    t.is(shared.message('{"RequestId":1,"Response":')[1], ending);
  }
});

interface Told {
  readonly requestId: unknown;
  readonly deltas: unknown;
}

async function watch(client: TestClient): Promise<() => Promise<Told>> {
  const made = await client.ask({ "request-id": 2, type: "Client", version: 6, request: "WatchAll" });
  const id = (made["response"] as { "watcher-id": string })["watcher-id"];
  let requestId = 2;
  return async () => {
    requestId += 1;
    const reply = await client.ask({ "request-id": requestId, type: "AllWatcher", version: 3, request: "Next", id });
    return { requestId: reply["request-id"], deltas: (reply["response"] as { deltas?: unknown }).deltas };
  };
}

test("users of every role get the same, agents nothing, and users without access any more nothing", async (t) => {
  const { connect, addUser, seed, users, manager, passwords, clock } = await jsonWorld(t, { facades: "all" });
  seed("node", workerNode("n1"));
  await addUser("ada");
  await addUser("eve", UserRole.USER_ROLE_READ_ONLY);
  await setPassword(manager.env, passwords, { kind: "machine", nodeId: "n1" }, password, call());
  const [admin, reader, agent] = [await connect(), await connect(), await connect()];
  await Promise.all([admin.login(), reader.login("user-eve"), agent.login(`machine-${machineId("n1")}`)]);
  const [adminNext, readerNext] = [await watch(admin), await watch(reader)];
  const [mine, theirs] = [await adminNext(), await readerNext()];
  t.deepEqual(mine, theirs);
  t.is(mine.requestId, 3);
  t.true(JSON.stringify(mine.deltas).includes('"instance-id":"n1"'));
  const refused = await agent.ask({ "request-id": 2, type: "Client", version: 6, request: "WatchAll" });
  t.is(refused["error"], "permission denied");

  await users.RemoveUser(RemoveUserRequest.create({ name: "eve" }), call());
  t.is(await reader.closed, 1008);
  const next = adminNext();
  seed("node", workerNode("n2"));
  await until("the next answer", async () => {
    clock.advance(10);
    return Promise.race([next.then(() => true), new Promise<boolean>((resolve) => setImmediate(resolve, false))]);
  });
  t.true(JSON.stringify((await next).deltas).includes('"instance-id":"n2"'));
});
