import { writeFileSync } from "node:fs";
import { join } from "node:path";
import test, { type ExecutionContext } from "ava";
import { tempDir } from "../fixtures/muster.ts";
import { served, type Served } from "../support/served.ts";

async function stage(t: ExecutionContext): Promise<Served & { readonly file: string }> {
  const file = join(tempDir(t, "content"), "content");
  writeFileSync(file, "hidden\n");
  return { ...(await served(t)), file };
}

for (const noun of ["secret", "config"] as const) {
  test(`${noun} create reads content from a file, with labels and a template driver`, async (t) => {
    const { muster, manager, file } = await stage(t);
    const flags = ["-l", "team=a", "--label", "b", "--template-driver", "golang"];
    const { lines, remarks } = await muster(noun, "create", ...flags, "key", file);
    t.deepEqual(remarks, []);
    const made = manager.store.byName(noun, "key");
    t.deepEqual(lines, [made?.id ?? ""]);
    t.deepEqual(made?.spec?.annotations?.labels, { team: "a", b: "" });
    t.is(made?.spec?.templating?.name, "golang");
    t.is(Buffer.from(made?.spec?.data ?? []).toString(), "hidden\n");
    t.deepEqual((await muster(noun, "create", "key", file)).remarks, [`muster: ${noun} key already exists`]);
    t.like(await muster(noun, "create", "other", "/nowhere/x"), {
      status: 1,
      remarks: ["muster: cannot read /nowhere/x: no such file or directory"],
    });
    t.like(await muster(noun, "create", "other"), { status: 125 });
  });

  test(`${noun} ls has Docker's columns, filters, ids alone and JSON`, async (t) => {
    const { muster, manager, file } = await stage(t);
    for (const [name, label] of [
      ["key10", "team=a"],
      ["key2", "team=b"],
      ["other", "solo"],
    ] as const) {
      await muster(noun, "create", "--label", label, name, file);
    }
    const idOf = (name: string): string => manager.store.byName(noun, name)?.id ?? "";
    const [head = "", ...rows] = (await muster(noun, "ls")).lines;
    t.regex(head, noun === "secret" ? /^ID +NAME +DRIVER +CREATED +UPDATED$/ : /^ID +NAME +CREATED +UPDATED$/);
    t.deepEqual(
      rows.map((row) => row.split(/ +/).slice(0, 2)),
      ["key2", "key10", "other"].map((name) => [idOf(name), name]),
    );
    const listed = async (...filters: readonly string[]): Promise<readonly string[]> =>
      (await muster(noun, "ls", "-q", ...filters.flatMap((filter) => ["--filter", filter]))).lines;
    t.deepEqual(await listed("name=key"), [idOf("key2"), idOf("key10")]);
    t.deepEqual(await listed("label=team"), [idOf("key2"), idOf("key10")]);
    t.deepEqual(await listed("label=team=a", "label=solo"), [idOf("key10"), idOf("other")]);
    t.deepEqual(await listed("name=key", `id=${idOf("key2")}`), [idOf("key2")]);
    const json = (await muster(noun, "ls", "--format", "json", "-f", "name=other")).lines.map((line) =>
      JSON.parse(line),
    );
    t.like(json[0], { ID: idOf("other"), Name: "other" });
    t.like(await muster(noun, "ls", "--filter", "size=1"), { status: 125 });
  });

  test(`${noun} inspect finds by name, id and prefix; rm rejects one in use`, async (t) => {
    const { muster, manager, file } = await stage(t);
    await muster(noun, "create", "key", file);
    const id = manager.store.byName(noun, "key")?.id ?? "";
    for (const text of ["key", id, id.slice(0, 10)]) {
      const { lines } = await muster(noun, "inspect", text);
      t.like(JSON.parse(lines.join("\n")), [{ ID: id, Spec: { Name: "key" } }]);
      const isTold = lines.join("\n").includes(Buffer.from("hidden\n").toString("base64"));
      t.is(isTold, noun === "config");
    }
    t.deepEqual((await muster(noun, "inspect", "no")).remarks, [`muster: ${noun} no not found`]);
    await muster("service", "create", "-d", "--name", "web", `--${noun}`, "key", "bb:1");
    t.regex((await muster(noun, "rm", "key")).remarks.join(), /is in use by the following service: web/);
    await muster("service", "rm", "web");
    t.deepEqual((await muster(noun, "rm", "key")).lines, ["key"]);
    t.is(manager.store.byName(noun, "key"), undefined);
  });
}

test("config inspect --pretty shows the content as text", async (t) => {
  const { muster, file } = await stage(t);
  await muster("config", "create", "-l", "a=b", "key", file);
  const { lines } = await muster("config", "inspect", "--pretty", "key");
  t.true(lines.includes("hidden"));
  t.true(lines.includes(" - a=b"));
  t.like(await muster("config", "inspect", "--pretty", "--format", "json", "key"), { status: 125 });
});

test("a secret of a driver has no content here", async (t) => {
  const { muster, manager, file } = await stage(t);
  t.like(await muster("secret", "create", "--driver", "vault", "key", file), { status: 125 });
  const { remarks } = await muster("secret", "create", "--driver", "vault", "key");
  t.regex(remarks.join("\n"), /^warning: .*do not support secret drivers: .* fail to start$/);
  t.is(manager.store.byName("secret", "key")?.spec?.driver?.name, "vault");
  t.regex((await muster("secret", "ls")).lines[1] ?? "", / key +vault /);
});
