/** What the parts of the Control service share. */
import type { ControlService } from "../../proto/gen/messages.ts";
import type { ServiceHandlers } from "../../runtime/rpc.ts";
import type { CertificateAuthority } from "../certificates/ca-port.ts";
import type { ExternalCa } from "../../runtime/external-ca.ts";

export type ControlHandlers = ServiceHandlers<typeof ControlService>;

/** What Control needs to know beyond the store. */
export interface ControlSources {
  /** Node id of the present leader; empty when none is known. */
  leaderId(): string;
  readonly authority: CertificateAuthority;
  /** None can be reached when absent. */
  readonly externalCa?: ExternalCa;
}
