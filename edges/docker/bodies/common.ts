/** Parts that several request bodies share. */
import { Annotations, Driver } from "../../../proto/gen/messages.ts";
import { map, shape, text, within } from "../shape.ts";

export const driver = shape("swarm.Driver", Driver, { Name: text("name"), Options: map("options") });
export const mountDriver = shape("mount.Driver", Driver, { Name: text("name"), Options: map("options") });

/** The embedded name and labels of every spec. */
export const annotations = {
  Name: within("annotations", Annotations, text("name")),
  Labels: within("annotations", Annotations, map("labels")),
} as const;
