/** Whether a nats-server is closed to strangers. Managers seal what they send there, but whoever gets in can delete it. */
import { isLoopback, type NatsAddress, showAddress } from "./address.ts";
import { NatsProblem } from "./errors.ts";
import type { Greeting } from "./greeting.ts";

const remedy =
  "see deploy/nats-server.conf and deploy/nats-certificates.sh, or accept it with --nats-insecure on a network of its own";

/** Null for a server that may be used: on loopback, or with TLS and authentication. `hasTls`: the connection will be encrypted. */
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
      `The nats-server at ${where} has no TLS, so everybody on the way could delete the log: give it certificates (${remedy}).`,
    );
  }
  if (!greeting.authRequired) {
    return new NatsProblem(
      "unusable",
      `The nats-server at ${where} lets everybody in without credentials, who could delete the log: ` +
        `require client certificates or users (${remedy}).`,
    );
  }
  return null;
}
