/** The port of an agent's name server: sockets and the wire of DNS. `edges/dns/` implements it. */

export interface NameQuestion {
  /** Address of who asks, without a port. */
  readonly from: string;
  /** As it was asked, without the dot at its end. */
  readonly name: string;
  /** `A`, `AAAA`, `PTR` … */
  readonly type: string;
}

export type NameReply =
  | { readonly kind: "addresses"; readonly ttlS: number; readonly addresses: readonly string[] }
  | { readonly kind: "pointers"; readonly ttlS: number; readonly names: readonly string[] }
  /** There is such a name, and nothing of what was asked. */
  | { readonly kind: "empty" }
  /** There is no such name. */
  | { readonly kind: "unknown" }
  /** Nobody can tell now. */
  | { readonly kind: "failed" }
  /** Who asks is told nothing. */
  | { readonly kind: "refused" }
  /** Asked of these, one after the other; empty: of the node's own. */
  | { readonly kind: "forward"; readonly servers: readonly string[] };

export interface NameServerOptions {
  readonly address: string;
  /** 0: any that is free. */
  readonly port: number;
  /** Must not throw or reject. */
  readonly answer: (question: NameQuestion) => NameReply | Promise<NameReply>;
  /** It has ended by itself, and is closed. */
  readonly onLost: (reason: string) => void;
}

export interface OpenNameServer {
  readonly port: number;
  /** Resolves when nothing of it is left. */
  close(): Promise<void>;
}

export interface NameServers {
  /** Answers over UDP and TCP; rejects with why it cannot listen there. */
  open(options: NameServerOptions): Promise<OpenNameServer>;
}
