import test from "ava";
import { readFilter } from "../../edges/juju/debug-log.ts";
import { modelUuid } from "../../edges/juju/model.ts";
import { failureOf } from "../support/json-world.ts";
import { jsonWorld, password } from "../support/json-api.ts";
import { clusterOf } from "../../actors/manager/bootstrap.ts";

const basic = (user: string, secret = password): string =>
  `Basic ${Buffer.from(`${user}:${secret}`).toString("base64")}`;

test("debug-log's first message reports success; a denied or invalid request gets an error and is closed", async (t) => {
  const { connect, addUser, env, port } = await jsonWorld(t, { facades: "all" });
  await addUser("ada");
  const log = `/model/${modelUuid(clusterOf(env)?.id ?? "")}/log`;
  const opened = async (path: string, authorization: string) => {
    const client = await connect(path, { to: port, headers: { authorization } });
    return { first: await client.next(), client };
  };
  const told = await opened(`${log}?noTail=true`, basic("user-ada"));
  t.deepEqual(told.first, {});
  t.is(await told.client.closed, 1000);
  const refused = await opened(log, basic("user-ada", "guess"));
  t.like(refused.first, { error: { code: "unauthorized access" } });
  t.is(await refused.client.closed, 1000);
  t.like((await opened(log, "")).first, { error: { code: "no credentials provided" } });
  t.like((await opened(`${log}?level=LOUD`, basic("user-ada"))).first, { error: { code: "bad request" } });
  t.like((await opened("/model/x/log", basic("user-ada"))).first, { error: { code: "model not found" } });
});

test("lines are selected by unit, stream and level, with stars as wildcards", async (t) => {
  const meant = (query: string) => {
    const { isMeant } = readFilter(query);
    return ["unit-web-0", "unit-web-1", "unit-db-0"].flatMap((tag) =>
      ["stdout", "stderr"].filter((stream) => isMeant(tag, stream)).map((stream) => `${tag} ${stream}`),
    );
  };
  t.is(meant("").length, 6);
  t.deepEqual(meant("includeEntity=unit-web-*&level=WARNING"), ["unit-web-0 stderr", "unit-web-1 stderr"]);
  t.deepEqual(meant("excludeEntity=unit-web-*&includeModule=stdout"), ["unit-db-0 stdout"]);
  t.deepEqual(meant("includeEntity=unit-*b-0&excludeModule=stderr"), ["unit-web-0 stdout", "unit-db-0 stdout"]);
  t.deepEqual(meant("includeEntity=unit-web-0&includeEntity=unit-db-0&level=ERROR"), []);
  t.deepEqual(meant("includeLabel=charm"), []);
  t.like(readFilter("replay=true&maxLines=3"), { backlog: 10_000, linesMax: 3, follows: true });
  t.like(readFilter("backlog=7&noTail=true&startTime=2026-01-02T15:04:05Z"), {
    backlog: 7,
    follows: false,
    since: "2026-01-02T15:04:05Z",
  });
  t.is((await failureOf(async () => readFilter("backlog=x")))?.code, "bad request");
});
