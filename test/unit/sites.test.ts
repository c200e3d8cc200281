// Sites that are cut off, as one trouble of each manager.
import test from "ava";
import { startSiteWatch } from "../../actors/manager/site-watch.ts";
import { createTroubles } from "../../actors/manager/troubles.ts";
import { siteLabel } from "../../machines/node.ts";
import { EngineDescription, Node, NodeDescription, NodeStatus, NodeStatus_State } from "../../proto/gen/messages.ts";
import { testManager } from "../support/manager.ts";

const { DISCONNECTED, DOWN, READY } = NodeStatus_State;

function nodeAt(id: string, site: string, state: NodeStatus_State): Node {
  const labels = site === "" ? {} : { [siteLabel]: site };
  const description = NodeDescription.create({ hostname: id, engine: EngineDescription.create({ labels }) });
  return Node.create({ id, description, status: NodeStatus.create({ state }) });
}

test("a site is cut off while none of its nodes answers and one is DOWN (S1)", (t) => {
  const { drop, env, seed, store } = testManager("m1");
  const troubles = createTroubles(env);
  const logged: string[] = [];
  const log = { ...env.telemetry.log, warn: (_: object, text: string) => void logged.push(text) };
  const counted = createTroubles({ clock: env.clock, telemetry: { ...env.telemetry, log } });
  seed("node", nodeAt("a", "lab", READY), nodeAt("b", "lab", READY), nodeAt("c", "", DOWN), nodeAt("d", "dock", DOWN));
  const watches = [startSiteWatch(store, troubles), startSiteWatch(store, counted)];
  const sentence = () => troubles.all()[0]?.sentence;
  t.is(sentence(), "site dock is cut off (1 node)");
  t.is(troubles.cause(), null, "it does not block");
  seed("node", nodeAt("d", "dock", READY));
  t.is(sentence(), undefined);
  seed("node", nodeAt("a", "lab", DOWN), nodeAt("b", "lab", DISCONNECTED));
  t.is(sentence(), undefined);
  seed("node", nodeAt("b", "lab", DOWN));
  t.is(sentence(), "site lab is cut off (2 nodes)");
  seed("node", nodeAt("d", "dock", DOWN));
  t.is(sentence(), "site dock is cut off (1 node), site lab is cut off (2 nodes)");
  drop("node", "d");
  t.is(sentence(), "site lab is cut off (2 nodes)");
  // It moved to another site, by its configuration.
  seed("node", nodeAt("a", "dock", READY));
  t.is(sentence(), "site lab is cut off (1 node)");
  seed("node", nodeAt("b", "lab", READY));
  t.is(sentence(), undefined);
  t.deepEqual(logged, ["trouble", "trouble"], "one event for each time that a site is cut off, not one for each node");
  for (const watch of watches) watch.stop();
  seed("node", nodeAt("b", "lab", DOWN));
  t.is(sentence(), undefined);
});
