// Errors for commands that Docker has and Muster does not.
import test from "ava";
import { insteadOf } from "../../cli/docker-words.ts";
import { commandAt, wordsAfter } from "../../cli/help/tree.ts";
import { verbs } from "../../cli/verbs.ts";
import { run } from "../../cli/run.ts";
import { processShell } from "../../cli/shell.ts";

async function told(...args: readonly string[]): Promise<readonly [number, string]> {
  const remarks: string[] = [];
  const status = await run(args, { ...processShell("/nowhere"), remark: (text) => void remarks.push(text) });
  return [status, remarks.join("\n")];
}

test("commands of a single engine, and those without meaning in a cluster, say what to do instead", async (t) => {
  t.deepEqual(await told("network", "connect", "back", "web"), [
    125,
    "muster: unknown command: muster network connect: a task's networks are fixed: " +
      "'muster service update --network-add NETWORK SERVICE' replaces the tasks of a service",
  ]);
  t.regex(
    (await told("volume", "prune", "--force"))[1],
    /^muster: unknown command: muster volume prune: .* cluster volumes are not pruned/,
  );
  t.regex((await told("swarm", "init"))[1], /the first manager creates the cluster: run 'muster up'/);
  t.regex(
    (await told("swarm", "join", "--token", "x", "a:2377"))[1],
    /'muster agent --join ADDR:PORT --token-file FILE' to join/,
  );
  t.regex((await told("swarm", "leave", "--force"))[1], /run 'muster node rm NODE'/);
  t.regex((await told("ps"))[1], /use 'muster task ls'/);
  t.regex((await told("pull", "bb"))[1], /one node's engine: run 'docker pull' on that node$/);
  t.deepEqual(await told("frobnicate"), [125, "muster: unknown command: muster frobnicate: see 'muster --help'"]);
  t.deepEqual(await told("network", "constructor"), [
    125,
    "muster: unknown command: muster network constructor: see 'muster network --help'",
  ]);
});

test("an error about a mistyped word suggests similar commands", async (t) => {
  const wrong: readonly (readonly [words: string, meant: string])[] = [
    ["servce ls", "'service'"],
    ["ndoe ls", "'node'"],
    ["hist", "'history'"],
    ["service inspct web", "'inspect'"],
    ["node demtoe n1", "'demote'"],
    ["network lst", "'ls'"],
  ];
  for (const [words, meant] of wrong) {
    const [status, remark] = await told(...words.split(" "));
    t.is(status, 125);
    t.true(remark.includes(`: did you mean ${meant}? see 'muster `), remark);
  }
  // Nothing is similar: no suggestion.
  t.false((await told("zzz"))[1].includes("did you mean"));
  t.false((await told("x"))[1].includes("did you mean"));
});

test("commands listed as missing do not exist, and their suggested replacements do", async (t) => {
  const nouns = [...((await wordsAfter(verbs, [])) ?? new Map()).keys()];
  const dockers =
    "attach build compose container create exec image images inspect kill login logs ps rm run search start";
  const nounless = `${dockers} stats stop system top update wait`.split(" ");
  const words = [
    "init",
    "join",
    "leave",
    "connect",
    "disconnect",
    "prune",
    "update",
    "start",
    "stop",
    "restart",
    "exec",
    "stats",
    "logs",
  ];
  const tried = [...nounless, ...nouns.flatMap((noun) => words.map((word) => `${noun} ${word}`))];
  let advised = 0;
  for (const each of tried) {
    const advice = insteadOf(each);
    const isOurs = (await commandAt(verbs, each.split(" ")))?.found.name === each;
    if (nounless.includes(each)) t.is(advice !== null, !isOurs, each);
    if (advice === null) continue;
    advised += 1;
    t.false(isOurs, `'muster ${each}' is a command`);
    for (const [, line = ""] of advice.matchAll(/'muster ([^']+)'/g)) {
      if (line.startsWith("NOUN")) continue;
      const found = await commandAt(verbs, line.split(" "));
      t.is(found?.found.name, line.split(/ (?=[A-Z-])/)[0], `${each}: ${line}`);
      if (/ [A-Z-]/.test(line)) found?.found.command.check(found.found.name, line.split(" ").slice(found.length));
    }
  }
  t.true(advised > 25);
});
