// The name of our exec driver, by who has started it.
import test from "ava";
import { execFor } from "../../drivers/exec/foreign.ts";
import { ownHostVariable } from "../../edges/plugin/handshake.ts";

test("the exec driver is called exec under Muster's agent, and does not shadow Nomad's exec unless configured to", (t) => {
  t.is(execFor([], { [ownHostVariable]: "muster" }).name, "exec");
  t.is(execFor([], {}).name, "muster-exec");
  t.is(execFor(["--name", "exec"], {}).name, "exec");
  t.is(execFor(["--name", "jobs"], { [ownHostVariable]: "muster" }).name, "jobs");
  for (const args of [["--name"], ["--name", "a b"], ["--name", "a", "b"], ["x"]])
    t.throws(() => execFor(args, {}), { message: /expected only --name NAME/ });
});
