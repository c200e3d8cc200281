// Ids of log subscriptions with their trace contexts, as nodes get them.
import test from "ava";
import { idForNodes, subscriptionOfNode } from "../../machines/logs/subscription-id.ts";
import { newId } from "../../runtime/ids.ts";
import { SimRandom } from "../../runtime/sim/random.ts";

const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

test("a subscription's id and trace are told apart, with and without a trace", (t) => {
  const id = newId(new SimRandom("1"));
  for (const subscription of [
    { id, traceparent },
    { id, traceparent: "" },
  ])
    t.deepEqual(subscriptionOfNode(idForNodes(subscription)), subscription);
  t.is(idForNodes({ id, traceparent: "" }), id, "without a trace, engines and agents get the id alone");
});
