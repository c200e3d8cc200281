/** `SecretSpec` and `ConfigSpec`. */
import { ConfigSpec, SecretSpec } from "../../../proto/gen/messages.ts";
import { bytes, object, shape } from "../shape.ts";
import { annotations, driver } from "./common.ts";

export const secretBody = shape("swarm.SecretSpec", SecretSpec, {
  ...annotations,
  Data: bytes("data"),
  Driver: object("driver", driver),
  Templating: object("templating", driver),
});

export const configBody = shape("swarm.ConfigSpec", ConfigSpec, {
  ...annotations,
  Data: bytes("data"),
  Templating: object("templating", driver),
});
