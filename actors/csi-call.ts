/** A call to a volume's storage plugin: with the volume's secrets, and its failure sorted. */
import type { Failing } from "../machines/csi/calls.ts";
import { secretsOf, withoutSecrets, type Secrets } from "../machines/csi/requests.ts";
import { driverOf } from "../machines/csi/stages.ts";
import type { Volume } from "../proto/gen/messages.ts";
import { RpcError, Status } from "../runtime/rpc.ts";
import type { Store } from "../runtime/store/store.ts";
import type { CsiPlugin } from "./csi-plugin.ts";
import { sentence } from "./sentence.ts";

export interface CallFailure {
  readonly type: "call.failed";
  readonly reason: string;
  readonly failing: Failing;
}

/** The interface's codes for "no, and asking again is no use before something has changed". */
const refusals: ReadonlySet<Status> = new Set([
  Status.INVALID_ARGUMENT,
  Status.NOT_FOUND,
  Status.ALREADY_EXISTS,
  Status.PERMISSION_DENIED,
  Status.RESOURCE_EXHAUSTED,
  Status.FAILED_PRECONDITION,
  Status.OUT_OF_RANGE,
  Status.UNIMPLEMENTED,
  Status.UNAUTHENTICATED,
]);

/**
 * Asks the volume's plugin, which `ask` is handed if it serves. Never rejects: a failure is told as an event, without the
 * volume's secrets.
 */
export async function callPlugin<Answer>(
  store: Store,
  plugin: CsiPlugin | undefined,
  volume: Volume,
  ask: (plugin: CsiPlugin, secrets: Secrets) => Promise<Answer>,
): Promise<{ readonly answer: Answer } | CallFailure> {
  const name = driverOf(volume);
  if (plugin === undefined)
    return failure("unclear", `storage plugin ${name} is not known to this manager: it has no socket here`);
  if (!plugin.isServing)
    return failure("unclear", `storage plugin ${name} cannot be reached from this manager: ${plugin.trouble}`);
  const secrets = secretsOf(volume.spec?.secrets ?? [], (id) => store.get("secret", id)?.spec?.data);
  try {
    return { answer: await ask(plugin, secrets) };
  } catch (error) {
    const failing = error instanceof RpcError && refusals.has(error.code) ? "refused" : "unclear";
    return failure(failing, withoutSecrets(`storage plugin ${name}: ${sentence(error)}`, secrets));
  }
}

/** What the plugin does not know cannot be there: that is as good as having it taken away. */
export async function unlessUnknown<Answer>(taking: Promise<Answer>): Promise<void> {
  try {
    await taking;
  } catch (error) {
    if (!(error instanceof RpcError && error.code === Status.NOT_FOUND)) throw error;
  }
}

function failure(failing: Failing, reason: string): CallFailure {
  return { type: "call.failed", reason, failing };
}
