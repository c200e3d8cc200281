// Everything that the muster command reads or changes is available over the JSON API, or its page says why not.
import { readFileSync } from "node:fs";
import test from "ava";
import type { Verb } from "../../cli/help/tree.ts";
import { verbs } from "../../cli/verbs.ts";
import { ControlService } from "../../proto/gen/messages.ts";
import { jsonWorld } from "../support/json-world.ts";

const nouns = ["node", "service", "task", "job", "network", "secret", "config", "volume", "policy", "stack"];

type Commands = Extract<Verb, { readonly kind: "noun" }>["commands"];

/** `node ls`, `service plan create`, … */
function namesOf(noun: string, commands: Commands): readonly string[] {
  return Object.entries(commands).flatMap(([name, command]) =>
    command.commands === undefined ? [`${noun} ${name}`] : namesOf(`${noun} ${name}`, command.commands),
  );
}

const page = readFileSync(new URL("../../docs/json-api.md", import.meta.url), "utf8");
const [, table = ""] = /\n\| `muster …` \| JSON API \|\n\|---\|---\|\n((?:\|.*\n)+)/.exec(page) ?? [];
const rows = table
  .trim()
  .split("\n")
  .map((row) => row.split("|").slice(1, 3) as [string, string])
  .map(([left, here]) => ({ verbs: [...left.matchAll(/`([^`]+)`/g)].map(([, name = ""]) => name), here: here.trim() }));

test("the page's table lists each command that needs the cluster exactly once, and no other", async (t) => {
  const all: string[] = [];
  for (const noun of nouns) {
    const verb = await verbs[noun]?.load();
    if (verb?.kind !== "noun") throw new Error(`${noun} is not a noun`);
    all.push(...namesOf(noun, verb.commands));
  }
  t.deepEqual(rows.flatMap((row) => row.verbs).toSorted(), all.toSorted());
});

test("each request in the page's table exists, and each command without one has a reason", async (t) => {
  const { facades } = await jsonWorld(t);
  const methods = new Set(facades.flatMap((facade) => Object.keys(facade.methods)));
  for (const { verbs: names, here } of rows) {
    if (here.startsWith("none: ")) continue;
    const said = here.replaceAll(/\([^)]*\)/g, "");
    const requests = [...said.matchAll(/\b(?:[A-Z]\w+\.)?([A-Z][a-z]+[A-Z]?\w*)\b/g)].map(([, name = ""]) => name);
    const unknown = requests.filter((name) => !methods.has(name) && !Object.hasOwn(ControlService.methods, name));
    t.deepEqual(unknown, [], names.join(", "));
    t.true(requests.length > 0, names.join(", "));
  }
});
