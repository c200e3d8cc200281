/** Types shared by the parts of the Control service. */
import type { ControlService } from "../../proto/gen/messages.ts";
import type { ServiceHandlers } from "../../runtime/ports/rpc.ts";
import type { CertificateAuthority } from "../certificates/ca-port.ts";
import type { ExternalCa } from "../../runtime/ports/external-ca.ts";

export type ControlHandlers = ServiceHandlers<typeof ControlService>;

/** Inputs of Control besides the store. */
export interface ControlSources {
  /** Node id of the current leader; empty when unknown. */
  leaderId(): string;
  readonly authority: CertificateAuthority;
  /** When absent, no external CA is reachable. */
  readonly externalCa?: ExternalCa;
}
