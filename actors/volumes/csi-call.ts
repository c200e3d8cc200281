/** A call to a volume's storage plugin: with the volume's secrets, and its failure sorted. */
import type { Failing } from "../../machines/volumes/csi/calls.ts";
import { secretsOf, withoutSecrets, type Secrets } from "../../machines/volumes/csi/requests.ts";
import type { VolumeSecret } from "../../proto/gen/messages.ts";
import { RpcError, Status } from "../../runtime/rpc.ts";
import type { CsiPlugin } from "./csi-plugin.ts";
import type { CsiPlugins } from "./csi-plugins.ts";
import { sentence } from "../sentence.ts";

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

export interface CallTarget {
  readonly plugins: CsiPlugins;
  /** The plugin's. */
  readonly name: string;
  readonly secrets: readonly VolumeSecret[];
  secretData(id: string): Uint8Array | undefined;
}

/**
 * Asks the plugin, which `ask` is handed if it serves. Never rejects: a failure is told as an event, without the secrets.
 */
export async function callPlugin<Answer>(
  { plugins, name, secrets: wanted, secretData }: CallTarget,
  ask: (plugin: CsiPlugin, secrets: Secrets) => Promise<Answer>,
): Promise<{ readonly answer: Answer } | CallFailure> {
  const plugin = plugins.find(name);
  if (plugin === undefined) return failure("unclear", `storage plugin ${name} is not known here: it has no socket`);
  if (!plugin.isServing)
    return failure("unclear", `storage plugin ${name} cannot be reached from here: ${plugin.trouble}`);
  const secrets = secretsOf(wanted, secretData);
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
