/** Plain HTTP on the JSON API's port, as Juju's command uses it before it can log in. */
import { request as httpsRequest } from "node:https";

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
