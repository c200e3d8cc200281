/** The port of looks from outside at whether something answers. `runtime/system/probes.ts` implements it over sockets. */

/** `reason`: one sentence, with some of what was answered. */
export type ProbeOutcome = { readonly kind: "passed" } | { readonly kind: "failed"; readonly reason: string };

export interface HttpProbe {
  /** An IP address. */
  readonly address: string;
  readonly port: number;
  /** With the query. */
  readonly path: string;
  /** Of the request's Host; empty: address and port. */
  readonly host: string;
}

/** None rejects. `signal` ends one under way, whose outcome counts no more. */
export interface Probes {
  /** One GET; a status from 200 to 399 passes, and a redirection is not followed. */
  http(probe: HttpProbe, signal: AbortSignal): Promise<ProbeOutcome>;
  /** One connection, closed as soon as it is there. */
  tcp(at: { readonly address: string; readonly port: number }, signal: AbortSignal): Promise<ProbeOutcome>;
}
