// The invariants of scarce resources: a removed ingress network, and one that replaces it in the same transaction.
import test from "ava";
import {
  Annotations,
  EndpointSpec,
  Network,
  NetworkSpec,
  PortConfig,
  PortConfig_PublishMode,
  Service,
  ServiceSpec,
} from "../../proto/gen/messages.ts";
import type { ObjectChange } from "../../runtime/store/store.ts";
import { checkContention } from "../../simulation/invariants/contention.ts";
import { testManager } from "../support/manager.ts";

const ingress = (id: string): Network =>
  Network.create({ id, spec: NetworkSpec.create({ annotations: Annotations.create({ name: id }), ingress: true }) });
const port = PortConfig.create({ targetPort: 80, publishedPort: 30_002, publishMode: PortConfig_PublishMode.INGRESS });
const service = Service.create({
  id: "s",
  spec: ServiceSpec.create({
    annotations: Annotations.create({ name: "s" }),
    endpoint: EndpointSpec.create({ ports: [port] }),
  }),
});
const removal: ObjectChange = { action: "remove", table: "network", object: ingress("in1"), old: null } as never;
const successor: ObjectChange = { action: "create", table: "network", object: ingress("in0"), old: null };
const creation: ObjectChange = { action: "create", table: "service", object: service, old: null };

function check(...changes: readonly ObjectChange[]): string | null {
  const { seed, store } = testManager();
  seed("network", ingress("in0"));
  seed("service", service);
  return checkContention({ version: 1, time: 0, changes, causes: [] }, store);
}

test("S53: an ingress network that a service needs is not removed", (t) => {
  t.regex(check(removal, successor) ?? "", /^S53: service s still refers to the removed network in1$/);
  t.regex(check(creation, removal, successor) ?? "", /^S53: /, "created before the removal");
});

test("S53: a service that the same transaction creates afterwards uses the network's successor", (t) => {
  t.is(check(removal, successor, creation), null);
});

test("S54: a service that publishes ports needs an ingress network", (t) => {
  const { seed, store } = testManager();
  seed("service", service);
  t.regex(checkContention({ version: 1, time: 0, changes: [creation], causes: [] }, store) ?? "", /^S54: service s /);
});
