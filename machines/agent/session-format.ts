/**
 * The format of an agent's session with a manager: what the two expect of each other beyond SwarmKit's protocol. The agent names it in
 * its description (docs/adr/0058-versions-of-formats.md).
 */
import type { NodeDescription } from "../../proto/gen/messages.ts";

/** Raised by one with a change that a manager which knows only the earlier format would misread. */
export const sessionFormat = 1;

const label = "muster.session-format";

export const sessionLabels: Readonly<Record<string, string>> = { [label]: String(sessionFormat) };

/** Whether these are the labels of an agent later than 0.1.0. */
export function namesFormat(labels: Readonly<Record<string, string>>): boolean {
  return Object.hasOwn(labels, label);
}

/** Why the session is refused; null if it is not. Engines and agents up to 0.1.0 name no format. */
export function newerSession(description: NodeDescription | null): string | null {
  const format = description?.engine?.labels[label] ?? "1";
  if (/^\d{1,9}$/.test(format) && Number(format) <= sessionFormat) return null;
  const version = description?.engine?.engineVersion ?? "";
  return `the agent of version ${version} uses format ${format} of sessions, but this manager knows format ${sessionFormat} at most: upgrade the managers before their agents`;
}
