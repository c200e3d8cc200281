// Turns of the event loop: output first, then work, a few milliseconds of it at a time (runtime/system/turns.ts).
import { spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import { text } from "node:stream/consumers";
import test from "ava";
import { afterPoll, soon } from "../../runtime/system/turns.ts";

function spin(ms: number): void {
  const until = performance.now() + ms;
  while (performance.now() < until);
}

/** Resolves when `seen` has this many. */
async function full(seen: readonly string[], size: number): Promise<void> {
  while (seen.length < size) await new Promise((resolve) => setImmediate(resolve));
}

test.serial("L1: work is done in order, and promises that it settles are handled before the next piece", async (t) => {
  const seen: string[] = [];
  for (const name of ["a", "b", "c"]) {
    soon(() => {
      seen.push(name);
      void (async () => {
        await Promise.resolve();
        await Promise.resolve();
        seen.push(`${name} settled`);
      })();
    });
  }
  await full(seen, 6);
  t.deepEqual(seen, ["a", "a settled", "b", "b settled", "c", "c settled"]);
});

test.serial("output goes before work that was requested earlier", async (t) => {
  const seen: string[] = [];
  soon(() => seen.push("work"));
  afterPoll(() => seen.push("sent"));
  await full(seen, 2);
  t.deepEqual(seen, ["sent", "work"]);
});

test.serial("a long piece of work leaves the next to another turn, and pending output goes first", async (t) => {
  const seen: string[] = [];
  soon(() => {
    seen.push("long");
    afterPoll(() => seen.push("sent"));
    spin(8);
  });
  soon(() => seen.push("next"));
  await full(seen, 3);
  t.deepEqual(seen, ["long", "sent", "next"]);
});

test.serial("L2: work requested by work waits for the next turn, behind output", async (t) => {
  const seen: string[] = [];
  soon(() => {
    seen.push("first");
    soon(() => seen.push("asked for by it"));
    afterPoll(() => seen.push("sent"));
  });
  await full(seen, 3);
  t.deepEqual(seen, ["first", "sent", "asked for by it"]);
});

test.serial("L3: a piece that throws affects no other", async (t) => {
  const turns = fileURLToPath(new URL("../../runtime/system/turns.ts", import.meta.url));
  const program = `
    import { soon } from ${JSON.stringify(turns)};
    process.on("uncaughtException", (error) => console.log("caught", error.message));
    soon(() => { throw new Error("one"); });
    soon(() => console.log("two"));
    soon(() => { throw new Error("three"); });
    soon(() => { console.log("four"); soon(() => console.log("five")); });
  `;
  const child = spawn(process.execPath, ["--input-type=module", "--eval", program], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  t.deepEqual((await text(child.stdout)).trim().split("\n"), ["caught one", "two", "caught three", "four", "five"]);
});
