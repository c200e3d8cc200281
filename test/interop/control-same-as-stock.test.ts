// What Control answers: the same requests to a stock swarmd and to ours, one after the other; status, text and what is
// listed must be the same. Where ours is another on purpose, the step says both.
import anyTest from "ava";
import { startSwarmd, swarmkitMissing } from "../fixtures/swarmkit.ts";
import { servedControl } from "../support/control.ts";
import { controlSteps, sideAt } from "../support/control-steps.ts";

const test = swarmkitMissing() === null ? anyTest.serial : anyTest.serial.skip;

for (const { title, steps } of controlSteps) {
  test(`${title}: a stock manager answers the same`, async (t) => {
    const [{ plainSocket }, { socket }] = await Promise.all([startSwarmd(t), servedControl(t)]);
    const stock = await sideAt(t, plainSocket);
    const ours = await sideAt(t, socket);
    const different: string[] = [];
    for (const [at, { method, request, differs }] of steps.entries()) {
      // One after the other: what the two know differs in ids alone.
      const expected = await stock.ask(method, request(stock));
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
