/** `NodeSpec`. */
import { NodeRole, NodeSpec, NodeSpec_Availability } from "../../../proto/gen/messages.ts";
import { badRequest } from "../failure.ts";
import { shape, word } from "../shape.ts";
import { annotations } from "./common.ts";

/** A word that must be one of the enum's names; empty or absent is wrong, too. */
function exactly<Value extends number>(values: Readonly<Record<string, Value>>, name: string, given: unknown): Value {
  const wanted = ((given as string | null | undefined) ?? "").toUpperCase();
  if (!Object.hasOwn(values, wanted)) throw badRequest(`invalid ${name}: ${JSON.stringify(given ?? "")}`);
  return values[wanted] as Value;
}

const unread = (given: string): string => given;

export const nodeBody = shape(
  "swarm.NodeSpec",
  NodeSpec,
  {
    ...annotations,
    Role: { ...word("desiredRole", "swarm.NodeRole", unread), put: () => undefined },
    Availability: { ...word("availability", "swarm.NodeAvailability", unread), put: () => undefined },
  },
  (spec, given) =>
    NodeSpec.patch(spec, {
      desiredRole: exactly(NodeRole, "Role", given["Role"]),
      availability: exactly(NodeSpec_Availability, "Availability", given["Availability"]),
    }),
);
