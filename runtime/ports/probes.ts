/** The port for health probes of TCP and HTTP servers. `runtime/system/probes.ts` implements it over sockets. */

/** `reason`: one sentence, including part of the response. */
export type ProbeOutcome = { readonly kind: "passed" } | { readonly kind: "failed"; readonly reason: string };

export interface HttpProbe {
  /** An IP address. */
  readonly address: string;
  readonly port: number;
  /** Path and query. */
  readonly path: string;
  /** Host header of the request; empty: address and port. */
  readonly host: string;
}

/** Probes never reject. `signal` cancels one in progress; its outcome is then ignored. */
export interface Probes {
  /** One GET request; a status from 200 to 399 passes. Redirects are not followed. */
  http(probe: HttpProbe, signal: AbortSignal): Promise<ProbeOutcome>;
  /** One connection, closed as soon as it is established. */
  tcp(at: { readonly address: string; readonly port: number }, signal: AbortSignal): Promise<ProbeOutcome>;
}
