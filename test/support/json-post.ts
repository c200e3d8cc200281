/** Plain HTTP on the JSON API's port, as Juju's command uses it before it can log in. */
import { request as httpsRequest } from "node:https";
import { connect } from "node:tls";

interface Posted {
  readonly status: number;
  /** Empty if it is not a JSON object. */
  readonly body: Record<string, unknown>;
  readonly cookie: string;
}

export function post(
  { port, rootPem }: { readonly port: number; readonly rootPem: string },
  path: string,
  body: string,
  headers: Record<string, string> = {},
  method = "POST",
): Promise<Posted> {
  return new Promise((resolve, reject) => {
    const options = { method, ca: rootPem, servername: "juju-apiserver", headers };
    const asked = httpsRequest(`https://127.0.0.1:${port}${path}`, options, (response) => {
      let text = "";
      response.on("data", (chunk: Buffer) => void (text += chunk.toString()));
      response.on("end", () =>
        resolve({
          status: response.statusCode ?? 0,
          body: text.startsWith("{") ? (JSON.parse(text) as Record<string, unknown>) : {},
          cookie: (response.headers["set-cookie"] ?? [])[0]?.split(";")[0] ?? "",
        }),
      );
    });
    asked.on("error", reject);
    asked.end(body);
  });
}

/**
 * The first line of the answer to a POST with a body of `bytes`, as a client on a network sends it: in parts, and it reads nothing
 * before its last part. Rejects if the connection breaks before.
 */
export async function statusAfterWhole(
  port: number,
  path: string,
  bytes: number,
  headers: Readonly<Record<string, string>> = {},
): Promise<string> {
  const partBytes = 10_000;
  const socket = connect({ host: "127.0.0.1", port, rejectUnauthorized: false });
  const broken = new Promise<never>((_resolve, reject) => {
    socket.on("error", reject);
    socket.on("close", () => reject(new Error("the connection was closed")));
  });
  const exchange = async (): Promise<string> => {
    await new Promise<void>((resolve) => socket.once("secureConnect", resolve));
    const head = { host: `127.0.0.1:${port}`, "content-length": String(bytes), ...headers };
    const lines = Object.entries(head).map(([name, value]) => `${name}: ${value}\r\n`);
    socket.write(`POST ${path} HTTP/1.1\r\n${lines.join("")}\r\n`);
    for (let sent = 0; sent < bytes; sent += partBytes) {
      await new Promise((resolve) => socket.write("x".repeat(Math.min(partBytes, bytes - sent)), resolve));
      // The server may take it, and answer.
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
    const first = await new Promise<Buffer>((resolve) => socket.once("data", resolve));
    return first.toString().split("\r\n")[0] ?? "";
  };
  try {
    return await Promise.race([exchange(), broken]);
  } finally {
    socket.destroy();
  }
}
