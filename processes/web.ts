/** The ports of a manager process for JSON clients and browsers. */
import type { Logins } from "../actors/json/logins.ts";
import type { Manager } from "../actors/manager/manager.ts";
import type { Admission } from "../edges/grpc/admission/admission.ts";
import type { GrpcServer } from "../edges/grpc/server.ts";
import type { Passwords } from "../runtime/ports/passwords.ts";
import type { ProcessTelemetry } from "../runtime/telemetry/telemetry.ts";
import type { HostPort } from "./addresses.ts";
import type { JsonOptions } from "./json-api.ts";
import { keepWebCertificate } from "./web-certificate.ts";

interface WebParts {
  readonly server: GrpcServer;
  readonly logins: Logins;
  readonly passwords: Passwords;
  readonly admission: Admission;
  readonly telemetry: ProcessTelemetry;
}

/** Resolves when the ports are open, or will open later. `onStop` receives each part's shutdown, in start order. */
export async function serveWeb(
  manager: Manager,
  { server, logins, passwords, admission, telemetry }: WebParts,
  { json, ui }: { readonly json: JsonOptions | null; readonly ui: HostPort | null },
  onStop: (end: () => Promise<void> | void) => void,
): Promise<void> {
  const listens = [json?.listen ?? null, json?.agents ?? null, ui].filter((listen) => listen !== null);
  const certificate = keepWebCertificate(manager, listens, onStop);
  // Each is loaded only when served: the JSON API costs 2 MB and 40 ms.
  if (json !== null) {
    const { serveJson } = await import("./json-api.ts");
    await serveJson(manager, { logins, passwords }, { ...json, certificate, telemetry, admission }, onStop);
  }
  if (ui !== null) {
    const { serveWebInterface } = await import("./web-interface.ts");
    await serveWebInterface(manager, { listen: ui, server, logins, certificate, admission, telemetry }, onStop);
  }
}
