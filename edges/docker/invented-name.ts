/** A name for a service that is created without one. Stock engines combine two words; here, it tells the kind and is unique. */
import { randomBytes } from "node:crypto";
import { Annotations } from "../../proto/gen/messages.ts";

export function inventedName(annotations: Annotations): Annotations {
  return Annotations.patch(annotations, { name: `service_${randomBytes(5).toString("hex")}` });
}
