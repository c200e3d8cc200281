/** Whether a nats-server is closed to strangers. Managers seal what they send there, but anyone with access can delete it. */
import { isLoopback, type NatsAddress, showAddress } from "./address.ts";
import { NatsProblem } from "./errors.ts";
import type { Greeting } from "./greeting.ts";

const remedy =
  "see deploy/nats-server.conf and deploy/nats-certificates.sh, or accept it with --nats-insecure on an isolated network";

/** Null for an acceptable server: on loopback, or with TLS and authentication. `hasTls`: the connection will be encrypted. */
export function openServerProblem(
  address: NatsAddress,
  greeting: Pick<Greeting, "authRequired">,
  hasTls: boolean,
): NatsProblem | null {
  if (isLoopback(address)) return null;
  const where = showAddress(address);
  if (!hasTls) {
    return new NatsProblem(
      "unusable",
      `the nats-server at ${where} has no TLS, so anyone on the network path could delete the log: configure certificates (${remedy})`,
    );
  }
  if (!greeting.authRequired) {
    return new NatsProblem(
      "unusable",
      `the nats-server at ${where} accepts clients without credentials, so anyone could delete the log: ` +
        `require client certificates or users (${remedy})`,
    );
  }
  return null;
}
