/** `muster ui`: the web interface, served on this machine for the manager that the command uses. */
import type { UiSession } from "../edges/ui/backend.ts";
import { channelBackend } from "../edges/ui/channel-backend.ts";
import { LiveTimeline } from "../edges/ui/live-timeline.ts";
import { UserError } from "../lib/user-error.ts";
import { version } from "../lib/version.ts";
import { OperatorService, StatusRequest, UiHello } from "../proto/gen/messages.ts";
import { command, type Command } from "./command.ts";
import { contextNameOf } from "./contexts.ts";
import { pageFlags, servePage } from "./serve/page.ts";
import type { Shell } from "./shell.ts";

/** Time for a manager to answer the first call, in milliseconds. */
const statusTimeoutMs = 10_000;

/** Opens sessions with one cluster: never with another that is found at the same place later. */
function sessionsOf(shell: Shell): () => Promise<UiSession> {
  let known = "";
  return async () => {
    const channel = await shell.connect();
    try {
      const status = await channel.unary(OperatorService.methods.Status, StatusRequest.create(), {
        timeoutMs: statusTimeoutMs,
      });
      if (known !== "" && status.clusterId !== known)
        throw new UserError("another cluster answers here now: run 'muster ui' again");
      known = status.clusterId;
      const hello = UiHello.create({
        version,
        role: status.callerRole,
        user: status.callerName,
        cluster: contextNameOf(shell.host ?? null),
      });
      return { hello, backend: channelBackend(channel, "the connection to the manager has ended") };
    } catch (error) {
      channel.close();
      throw error;
    }
  };
}

export const ui: Command = command({
  summary:
    "Serve the web interface on this machine, at an address with a token that works once, until interrupted; it shows the cluster with the rights of this command's user.",
  options: pageFlags,
  async run({ values, shell }) {
    const open = sessionsOf(shell);
    // A manager that cannot be reached is an error of the command, not of the page.
    const { backend } = await open();
    backend.close?.();
    const timeline = new LiveTimeline({ connect: async () => (await open()).backend });
    await servePage(shell, values, { command: "muster ui", open: async () => timeline.session(await open()) });
    timeline.stop();
  },
});
