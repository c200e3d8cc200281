/** Calls a volume's storage plugin with the volume's secrets, and classifies failures. */
import type { CallOutcome, Failing } from "../../machines/volumes/csi/calls.ts";
import { secretsOf, withoutSecrets, type Secrets } from "../../machines/volumes/csi/requests.ts";
import type { VolumeSecret } from "../../proto/gen/messages.ts";
import { RpcError, Status } from "../../runtime/ports/rpc.ts";
import type { CsiPlugin } from "./csi-plugin.ts";
import type { CsiPlugins } from "./csi-plugins.ts";
import { sentence } from "../sentence.ts";

/** CSI status codes that mean a retry is useless until something changes. */
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
  /** Name of the plugin. */
  readonly name: string;
  readonly secrets: readonly VolumeSecret[];
  /**
   * Asked before the call: a storage system cannot reject what a leader whose term is over asks of it, such as a volume that the
   * next leader has deleted. Absent on nodes.
   */
  readonly mayCall?: () => boolean;
  secretData(id: string): Uint8Array | undefined;
}

/** Calls `ask` with the plugin if it is serving. Never rejects: the outcome is an event, with secrets removed. */
export async function callPlugin(
  { mayCall, plugins, name, secrets: wanted, secretData }: CallTarget,
  ask: (plugin: CsiPlugin, secrets: Secrets) => Promise<void>,
): Promise<CallOutcome> {
  const plugin = plugins.find(name);
  if (plugin === undefined) return failure("unclear", `storage plugin ${name} has no socket on this machine`);
  if (!plugin.isServing) return failure("unclear", `cannot reach storage plugin ${name} from here: ${plugin.trouble}`);
  if (mayCall?.() === false) return failure("unclear", "this manager no longer leads");
  const secrets = secretsOf(wanted, secretData);
  try {
    await ask(plugin, secrets);
    return { type: "call.answered" };
  } catch (error) {
    const failing = error instanceof RpcError && refusals.has(error.code) ? "refused" : "unclear";
    return failure(failing, withoutSecrets(`storage plugin ${name}: ${sentence(error)}`, secrets));
  }
}

/** Treats NOT_FOUND as success: what the plugin does not know is already removed. */
export async function unlessUnknown<Answer>(taking: Promise<Answer>): Promise<void> {
  try {
    await taking;
  } catch (error) {
    if (!(error instanceof RpcError && error.code === Status.NOT_FOUND)) throw error;
  }
}

function failure(failing: Failing, reason: string): CallOutcome {
  return { type: "call.failed", reason, failing };
}
