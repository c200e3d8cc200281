import { writeFileSync } from "node:fs";
import { join } from "node:path";
import test from "ava";
import { scheduleKind } from "../../machines/orchestration/jobs/runs.ts";
import { Annotations, Resource } from "../../proto/gen/messages.ts";
import { tempDir } from "../fixtures/muster.ts";
import { served } from "../support/served.ts";

test("a kind is registered, gets objects, and is removed after them", async (t) => {
  const { muster, manager } = await served(t);
  const dir = tempDir(t, "resource");
  const file = join(dir, "policy");
  writeFileSync(file, "deny all");
  const created = await muster("extension", "create", "--description", "who may talk", "-l", "team=a", "policy");
  const extension = manager.store.byName("extension", "policy");
  t.deepEqual(created.lines, [extension?.id ?? ""]);
  t.is(extension?.description, "who may talk");
  t.deepEqual(extension?.annotations?.labels, { team: "a" });
  const { lines } = await muster("extension", "ls");
  t.regex(lines[0] ?? "", /^ID +NAME +DESCRIPTION +CREATED +UPDATED/);
  t.regex(lines[1] ?? "", /policy +who may talk/);
  t.is(
    (await muster("extension", "inspect", "policy", "--format", "{{.Name}} {{.Description}}")).lines[0],
    "policy who may talk",
  );

  const made = await muster("resource", "create", "policy", "closed", file, "--type", "example.com/Policy");
  const resource = manager.store.byName("resource", "closed");
  t.deepEqual(made.lines, [resource?.id ?? ""]);
  t.is(resource?.payload?.type_url, "example.com/Policy");
  t.is(Buffer.from(resource?.payload?.value ?? []).toString(), "deny all");
  t.regex((await muster("resource", "ls", "--kind", "policy")).lines[1] ?? "", /closed +policy/);
  t.is((await muster("resource", "ls", "--kind", "other")).lines.length, 1);
  t.deepEqual((await muster("resource", "ls", "-q", "--filter", "name=clo")).lines, [resource?.id ?? ""]);
  const [shown] = JSON.parse((await muster("resource", "inspect", "closed")).lines.join("\n")) as [
    Record<string, unknown>,
  ];
  t.like(shown, { Name: "closed", Kind: "policy", Payload: { TypeUrl: "example.com/Policy", Value: "ZGVueSBhbGw=" } });

  const used = await muster("extension", "rm", "policy");
  t.is(used.status, 1);
  t.regex(used.remarks.join(), /extension 'policy' is in use by the following resource: closed/);
  t.deepEqual((await muster("resource", "rm", "closed")).lines, ["closed"]);
  t.deepEqual((await muster("extension", "rm", "policy")).lines, ["policy"]);
  t.is(manager.store.count("extension"), 0);
});

test("a resource's labels and content change separately; its name and omitted fields stay", async (t) => {
  const { muster, manager } = await served(t);
  const file = join(tempDir(t, "resource"), "content");
  writeFileSync(file, "new");
  await muster("extension", "create", "policy");
  await muster("resource", "create", "policy", "p", "--type", "old", "--label", "a=1", "--label", "b=2");
  const stored = () => manager.store.byName("resource", "p");
  t.deepEqual((await muster("resource", "update", "p", "--label-rm", "a", "--label-add", "c=3")).lines, ["p"]);
  t.deepEqual(stored()?.annotations?.labels, { b: "2", c: "3" });
  t.is(stored()?.payload?.type_url, "old");
  await muster("resource", "update", "p", file);
  t.is(Buffer.from(stored()?.payload?.value ?? []).toString(), "new");
  t.is(stored()?.payload?.type_url, "old");
  t.deepEqual(stored()?.annotations?.labels, { b: "2", c: "3" });
});

test("the cluster's internal objects are listed on request", async (t) => {
  const { muster, manager } = await served(t);
  await muster("extension", "create", "policy");
  await muster("resource", "create", "policy", "p", "--type", "x");
  const own = Resource.create({ id: "s1", kind: scheduleKind, annotations: Annotations.create({ name: "record" }) });
  manager.seed("resource", own);
  const names = async (...args: string[]) =>
    (await muster("resource", "ls", "--format", "{{.Name}}", ...args)).lines.toSorted();
  t.deepEqual(await names(), ["p"]);
  t.deepEqual(await names("--all"), ["p", "record"]);
  t.deepEqual(await names("--kind", scheduleKind), ["record"]);
});

test("a missing or unregistered object is reported in one sentence", async (t) => {
  const { muster } = await served(t);
  t.regex((await muster("resource", "create", "nothing", "p")).remarks.join(), /Kind nothing is not registered/);
  t.regex((await muster("resource", "inspect", "p")).remarks.join(), /resource p not found/);
  t.regex((await muster("extension", "rm", "p")).remarks.join(), /extension p not found/);
  t.regex((await muster("extension", "create", "service")).remarks.join(), /extension service already exists/);
});
