/** The certificate of a manager's ports for JSON clients and browsers: one for all of them. */
import { networkInterfaces } from "node:os";
import { startJsonCertificate, type JsonCertificate } from "../actors/json/certificate.ts";
import type { Manager } from "../actors/manager/manager.ts";
import * as pki from "../lib/pki/index.ts";
import type { HostPort } from "./addresses.ts";

export interface WebCertificate {
  /** Resolves when there is a certificate, or with null when the first attempt has failed; later ones may succeed. */
  readonly tried: Promise<JsonCertificate | null>;
  /** Calls back with the present certificate, if there is one, and each later one. */
  follow(listener: (certificate: JsonCertificate) => void): void;
}

/** The certificate's hosts: the listen address, or all of the machine's addresses. */
function hostsOf({ host }: HostPort): readonly string[] {
  if (host !== "0.0.0.0" && host !== "::") return [host];
  return Object.values(networkInterfaces()).flatMap((addresses) => (addresses ?? []).map(({ address }) => address));
}

/** `onStop` receives its shutdown. */
export function keepWebCertificate(
  { clockWatch, environment }: Manager,
  listens: readonly HostPort[],
  onStop: (end: () => void) => void,
): WebCertificate {
  let current: JsonCertificate | null = null;
  const listeners: ((certificate: JsonCertificate) => void)[] = [];
  const tried = Promise.withResolvers<JsonCertificate | null>();
  const keeper = startJsonCertificate(environment, pki, {
    hosts: [...new Set(listens.flatMap(hostsOf))],
    onCertificate: (certificate) => {
      current = certificate;
      tried.resolve(certificate);
      for (const listener of listeners) listener(certificate);
    },
    onClockJump: (listener) => clockWatch.onJump(listener),
    onFailed: () => tried.resolve(null),
  });
  onStop(() => keeper.stop());
  return {
    tried: tried.promise,
    follow: (listener) => {
      listeners.push(listener);
      if (current !== null) listener(current);
    },
  };
}
