/** `muster token worker|manager [--rotate]`: prints a join token only; `muster token site NAME`: a password for a site's leaf node. */
import { isLeafSite, sitePassword } from "../lib/pki/site-password.ts";
import { UsageError } from "../lib/user-error.ts";
import { command, type Command } from "./command.ts";
import { joinRole, joinTokenOf, rotateJoinToken } from "./join-tokens.ts";
import { withManager } from "./manager-client.ts";

export const token: Command = command({
  operands: "worker|manager|site [NAME]",
  min: 1,
  max: 2,
  summary:
    "Display the join token, or a password for a site's leaf node of NATS; --rotate replaces the token first, which invalidates the old one.",
  options: {
    rotate: {
      type: "boolean",
      help: "Rotate the token first; nodes can no longer join with the old one, and with the worker's all sites get other passwords",
    },
    quiet: { type: "boolean", short: "q", help: "Accepted for compatibility; only the token is printed" },
  },
  run: ({ values, operands: [kind, site, ...rest], shell }) => {
    const name = kind === "site" ? siteName(site) : null;
    if (name !== null && values.rotate === true)
      throw new UsageError("--rotate is for tokens: a site's password is replaced by 'muster token worker --rotate'");
    if (name === null && site !== undefined)
      throw new UsageError(`unexpected argument "${[site, ...rest].join(" ")}": only 'muster token site' takes a name`);
    return withManager(shell, async (client) => {
      const role = name === null ? joinRole(kind, "token") : "worker";
      if (values.rotate === true) await rotateJoinToken(client, role);
      const joinToken = await joinTokenOf(client, role);
      shell.print(name === null ? joinToken : sitePassword(joinToken, name));
    });
  },
});

/** Throws UsageError. */
function siteName(name: string | undefined): string {
  if (name === undefined)
    throw new UsageError("'muster token site' requires the site's name, such as 'muster token site lab'");
  if (!isLeafSite(name))
    throw new UsageError(
      `invalid name "${name}" of a site behind a leaf node: expected up to 63 letters, digits, '_' and '-'`,
    );
  return name;
}
