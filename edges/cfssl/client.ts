/**
 * External certificate authorities over CFSSL's API, asked with the manager's own certificate.
 *
 * F1: an address is only believed when its server certificate leads to the very root for which it is to sign.
 * F2: an answer of any length or slowness costs a bounded amount of memory and time.
 */
import { request } from "node:https";
import { connect } from "node:tls";
import type { ExternalCa, ExternalRequest } from "../../runtime/external-ca.ts";
import { signingAnswer, signingRequest } from "./messages.ts";

/** SwarmKit's time for a probe and for one request, in milliseconds. */
const timeoutMs = 5_000;
/** SwarmKit reads no more of an answer, in bytes. */
const answerBytesMax = 1_048_576;

/** PEM; null before the manager has one. */
export type ClientCertificate = { readonly certificatePem: string; readonly keyPem: string } | null;

function options(rootPem: string, certificate: ClientCertificate) {
  return {
    ca: rootPem,
    minVersion: "TLSv1.2",
    ...(certificate === null ? {} : { cert: certificate.certificatePem, key: certificate.keyPem }),
  } as const;
}

/** Null for what is no HTTPS address. */
function httpsUrl(text: string): URL | null {
  if (!URL.canParse(text)) return null;
  const url = new URL(text);
  return url.protocol === "https:" ? url : null;
}

export function createExternalCa(certificate: () => ClientCertificate): ExternalCa {
  function post(url: URL, rootPem: string, body: string): Promise<string> {
    return new Promise((resolve, reject) => {
      const call = request(
        url,
        {
          ...options(rootPem, certificate()),
          method: "POST",
          headers: { "content-type": "application/json", "content-length": Buffer.byteLength(body) },
          agent: false,
          // From the first byte to the last: a server that trickles is as useless as one that is silent. F2
          signal: AbortSignal.timeout(timeoutMs),
        },
        (response) => {
          const chunks: Buffer[] = [];
          let length = 0;
          response.on("data", (chunk: Buffer) => {
            length += chunk.length;
            if (length > answerBytesMax) call.destroy(new Error("the answer is too long"));
            else chunks.push(chunk);
          });
          response.on("error", reject);
          response.on("end", () => {
            const text = Buffer.concat(chunks).toString("utf8");
            if (response.statusCode === 200) resolve(text);
            else reject(new Error(`HTTP status ${response.statusCode}: ${text.slice(0, 200).trim()}`));
          });
        },
      );
      call.on("error", reject);
      call.end(body);
    });
  }

  async function signAt(address: string, rootPem: string, body: string): Promise<string> {
    const url = httpsUrl(address);
    if (url === null) throw new Error("invalid HTTP scheme");
    const answer = signingAnswer(await post(url, rootPem, body));
    if (answer.kind === "refused") throw new Error(answer.reason);
    return answer.certificatePem;
  }

  return {
    probe(address, rootPem) {
      const url = httpsUrl(address);
      if (url === null) return Promise.resolve("invalid HTTP scheme");
      return new Promise((resolve) => {
        const host = url.hostname.replace(/^\[(.*)\]$/, "$1");
        const end = (problem: string | null): void => {
          socket.destroy();
          resolve(problem);
        };
        const port = url.port === "" ? 443 : Number(url.port);
        let socket: ReturnType<typeof connect>;
        try {
          socket = connect({ ...options(rootPem, certificate()), host, port, ...serverName(host) });
        } catch (error) {
          resolve((error as Error).message);
          return;
        }
        socket.setTimeout(timeoutMs, () => end("no answer in time"));
        socket.once("secureConnect", () => end(null));
        socket.once("error", (error) => end(error.message));
      });
    },

    async sign(addresses, rootPem, wanted: ExternalRequest) {
      const body = signingRequest(wanted);
      const problems: string[] = [];
      for (const address of addresses) {
        try {
          return await signAt(address, rootPem, body);
        } catch (error) {
          problems.push(`${address}: ${(error as Error).message}`);
        }
      }
      throw new Error(`no external CA signed: ${problems.join("; ") || "none is set"}`);
    },
  };
}

/** TLS knows no server name that is an address. */
function serverName(host: string): { servername?: string } {
  return /^[\d.]+$|:/.test(host) ? {} : { servername: host };
}
