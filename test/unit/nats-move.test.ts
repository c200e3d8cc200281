// The move of the log to a cluster of three begins when there are three managers, each with an address of its own.
import test from "ava";
import { startNatsMove } from "../../actors/manager/nats-move.ts";
import { Manager } from "../../proto/gen/messages.ts";
import { testManager } from "../support/manager.ts";

test("a manager that joins with the address of another does not begin the move", async (t) => {
  const { clock, env, seed } = testManager();
  const asked: (readonly string[])[] = [];
  const unused = async (): Promise<never> => t.fail() as never;
  const move = startNatsMove(
    env,
    {
      gather: async (addresses) => void asked.push(addresses),
      copy: unused,
      commit: unused,
      isCommitted: unused,
      save: () => {},
      restart: () => {},
    },
    { stage: "none", store: env.store },
  );
  t.teardown(() => move.stop());
  const run = () => clock.run({ untilMs: clock.now() + 1_000 });
  const manager = (id: string, addr: string): Manager => Manager.create({ id, addr, alive: true });
  seed("manager", manager(env.managerId, "a:2377"), manager("second", "b:2377"));
  seed("manager", manager("third", "b:2377"));
  await run();
  t.deepEqual(asked, []);
  seed("manager", manager("third", "a:2377"));
  await run();
  t.deepEqual(asked, []);
  seed("manager", manager("third", "c:2377"));
  await run();
  t.deepEqual(asked, [["b:2377", "c:2377"]]);
});
