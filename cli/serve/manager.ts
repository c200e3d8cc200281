/** `muster manager`. */
import { command, type Command } from "../command.ts";
import { UsageError } from "../../lib/user-error.ts";
import { formatHostPort, parseHostPort } from "../../processes/addresses.ts";
import type { ManagerInvitation } from "../../processes/manager-join.ts";
import { startManagerProcess } from "../../processes/manager.ts";
import { natsFlags, sharedNatsOf } from "./nats-flags.ts";
import { runUntilEnd } from "../../processes/run-until-end.ts";
import { tokenFlags, tokenOf, type TokenValues } from "./token-flags.ts";
import { defaultPort, recorderOf, serving, servingOf } from "./serving-flags.ts";
import { telemetryFor } from "../../processes/telemetry.ts";

export const manager: Command = command({
  summary: "Run one manager; without --nats the managers of a cluster run their own nats-servers.",
  options: {
    ...serving,
    ...natsFlags,
    join: { type: "string", value: "ADDR:PORT", help: "Address of a manager of the cluster to join" },
    ...tokenFlags("manager"),
  },
  run: async ({ values }) => {
    if (values["data-dir"] === undefined)
      throw new UsageError("--data-dir is required: the manager keeps its state there");
    const nats = sharedNatsOf(values);
    const telemetry = await telemetryFor("muster-manager", values["log-level"], { recorder: recorderOf(values) });
    const options = {
      dataDir: values["data-dir"],
      ...servingOf(values),
      nats,
      join: invitation(values),
      telemetry,
    };
    await runUntilEnd(telemetry, (starting) => startManagerProcess(options, starting));
  },
});

/** Throws UsageError unless both or neither are set. */
function invitation(values: TokenValues & { readonly join?: string | undefined }): ManagerInvitation | null {
  const { join: address } = values;
  const token = tokenOf(values);
  if (address === undefined && token === undefined) return null;
  if (address === undefined || token === undefined)
    throw new UsageError("--join and a token (--token or --token-file) must be set together");
  return { address: formatHostPort(parseHostPort(address, defaultPort)), token };
}
