// Control's answers: the same requests to a stock swarmd and to ours, in turn; status, text and listed objects must be equal.
// Where ours differs on purpose, the step states both.
import anyTest from "ava";
import { startSwarmd, swarmkitMissing } from "../fixtures/swarmkit.ts";
import { servedControl } from "../support/control.ts";
import { sideAt, type Side, type Step } from "../support/control-side.ts";
import { controlSteps } from "../support/control-steps.ts";

const test = swarmkitMissing() === null ? anyTest.serial : anyTest.serial.skip;

/** A stock manager changes services and its cluster object by itself, and then has a version that we have not seen. */
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
  test(`${title}: the answers equal a stock manager's`, async (t) => {
    const [{ plainSocket }, { socket }] = await Promise.all([startSwarmd(t), servedControl(t)]);
    const stock = await sideAt(t, plainSocket);
    const ours = await sideAt(t, socket);
    const different: string[] = [];
    for (const [at, { method, request, differs }] of steps.entries()) {
      // One after the other: the state of the two differs only in ids.
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
