/** The port of an agent's name server: sockets and the DNS wire format. `edges/dns/` implements it. */

export interface NameQuestion {
  /** The client's address, without port. */
  readonly from: string;
  /** As in the query, without the final dot. */
  readonly name: string;
  /** `A`, `AAAA`, `PTR` … */
  readonly type: string;
}

export type NameReply =
  | { readonly kind: "addresses"; readonly ttlS: number; readonly addresses: readonly string[] }
  | { readonly kind: "pointers"; readonly ttlS: number; readonly names: readonly string[] }
  /** The name exists, but has no records of that type. */
  | { readonly kind: "empty" }
  /** The name does not exist. */
  | { readonly kind: "unknown" }
  /** The answer is currently unknown. */
  | { readonly kind: "failed" }
  /** The client may not ask. */
  | { readonly kind: "refused" }
  /** Forwarded to these servers in order; empty: to the node's own. */
  | { readonly kind: "forward"; readonly servers: readonly string[] };

export interface NameServerOptions {
  readonly address: string;
  /** 0: any free port. */
  readonly port: number;
  /** Must not throw or reject. */
  readonly answer: (question: NameQuestion) => NameReply | Promise<NameReply>;
  /** It has closed because of an error. */
  readonly onLost: (reason: string) => void;
}

export interface OpenNameServer {
  readonly port: number;
  /** Resolves when everything is closed. */
  close(): Promise<void>;
}

export interface NameServers {
  /** Answers over UDP and TCP; rejects with the reason if it cannot listen. */
  open(options: NameServerOptions): Promise<OpenNameServer>;
}
