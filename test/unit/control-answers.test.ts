// Control's answers as a readable transcript: test/model/control-answers.txt. REWRITE=1 rewrites it, and the diff is reviewed;
// test/interop checks whether a stock manager answers the same.
import { readFileSync, writeFileSync } from "node:fs";
import test from "ava";
import { servedControl } from "../support/control.ts";
import { sideAt } from "../support/control-side.ts";
import { controlSteps } from "../support/control-steps.ts";

const transcript = new URL("../model/control-answers.txt", import.meta.url);
/** Displayed characters of a request: data of secrets is long. */
const shownMax = 160;

test("Control answers each request as at the last review", async (t) => {
  const lines: string[] = [];
  for (const { title, steps } of controlSteps) {
    lines.push(`# ${title}`, "");
    const side = await sideAt(t, (await servedControl(t)).socket);
    for (const { method, request } of steps) {
      const asked = side.unnamed(JSON.stringify(request(side)));
      lines.push(`${method} ${asked.slice(0, shownMax)}`);
      lines.push(`  ${side.unnamed(await side.ask(method, request(side)))}`);
    }
    lines.push("");
  }
  const said = lines.join("\n");
  if (process.env["REWRITE"] === "1") writeFileSync(transcript, said);
  t.deepEqual(said.split("\n"), readFileSync(transcript, "utf8").split("\n"));
});
