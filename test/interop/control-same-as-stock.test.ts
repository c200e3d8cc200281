// What Control answers: the same requests to a stock swarmd and to ours, one after the other; status, text and what is
// listed must be the same. Where ours is another on purpose, the step says both.
import anyTest from "ava";
import { startSwarmd, swarmkitMissing } from "../fixtures/swarmkit.ts";
import { servedControl } from "../support/control.ts";
import { sideAt, type Side, type Step } from "../support/control-side.ts";
import { controlSteps } from "../support/control-steps.ts";

const test = swarmkitMissing() === null ? anyTest.serial : anyTest.serial.skip;

/** A stock manager changes services and its cluster object by itself, and then knows a version that we have not seen. */
async function settled(
  stock: Side,
  method: string,
  request: Step["request"],
  wanted: RegExp | undefined,
): Promise<string> {
  for (let attempt = 1; ; attempt += 1) {
    const answer = await stock.ask(method, request(stock));
    if (answer !== "UNKNOWN update out of sequence" || wanted?.test(answer) === true || attempt === 5) return answer;
    await stock.ask(method.replace(/^Update(\w+)$/, "List$1s"), {});
  }
}

for (const { title, steps } of controlSteps) {
  test(`${title}: a stock manager answers the same`, async (t) => {
    const [{ plainSocket }, { socket }] = await Promise.all([startSwarmd(t), servedControl(t)]);
    const stock = await sideAt(t, plainSocket);
    const ours = await sideAt(t, socket);
    const different: string[] = [];
    for (const [at, { method, request, differs }] of steps.entries()) {
      // One after the other: what the two know differs in ids alone.
      const expected = await settled(stock, method, request, differs?.stock);
      const answer = await ours.ask(method, request(ours));
      const isAsMeant =
        differs === null ? answer === expected : differs.stock.test(expected) && differs.ours.test(answer);
      if (isAsMeant) continue;
      const asked = JSON.stringify(request(ours)).slice(0, 200);
      different.push(`step ${at}: ${method} ${asked}`, `  stock: ${expected}`, `  ours:  ${answer}`);
    }
    t.deepEqual(different, []);
  });
}
