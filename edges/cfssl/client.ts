/**
 * Client of external certificate authorities over CFSSL's API; it authenticates with the manager's own certificate.
 *
 * F1: an address is trusted only if its server certificate chains to the root for which it is to sign.
 * F2: an answer costs a bounded amount of memory and time, however long or slow it is.
 */
import { request } from "node:https";
import { connect } from "node:tls";
import type { ExternalCa, ExternalRequest } from "../../runtime/ports/external-ca.ts";
import { signingAnswer, signingRequest } from "./messages.ts";

/** Timeout of a probe and of one request, in milliseconds: SwarmKit's. */
const timeoutMs = 5_000;
/** Maximum size of an answer, in bytes: SwarmKit's. */
const answerBytesMax = 1_048_576;

/** PEM; null before the manager has one. */
type ClientCertificate = { readonly certificatePem: string; readonly keyPem: string } | null;

function options(rootPem: string, certificate: ClientCertificate) {
  return {
    ca: rootPem,
    minVersion: "TLSv1.2",
    ...(certificate === null ? {} : { cert: certificate.certificatePem, key: certificate.keyPem }),
  } as const;
}

/** Null if `text` is not an HTTPS URL. */
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
          // Covers the whole exchange: a server that trickles is as useless as a silent one. F2
          signal: AbortSignal.timeout(timeoutMs),
        },
        (response) => {
          const chunks: Buffer[] = [];
          let length = 0;
          response.on("data", (chunk: Buffer) => {
            length += chunk.length;
            if (length > answerBytesMax) call.destroy(new Error(`the answer is longer than ${answerBytesMax} bytes`));
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
        socket.setTimeout(timeoutMs, () => end(`no answer within ${timeoutMs} ms`));
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
      throw new Error(`no external CA signed the request: ${problems.join("; ") || "none is configured"}`);
    },
  };
}

/** TLS does not allow an IP address as a server name. */
function serverName(host: string): { servername?: string } {
  return /^[\d.]+$|:/.test(host) ? {} : { servername: host };
}
