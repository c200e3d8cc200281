/** The web interface of a manager process, for users who log in with their password. */
import { duplexPair } from "node:stream";
import type { JsonCertificate } from "../actors/json/certificate.ts";
import type { Logins } from "../actors/json/logins.ts";
import { standingOfLogin } from "../actors/json/user-records.ts";
import type { Manager } from "../actors/manager/manager.ts";
import type { Admission } from "../edges/grpc/admission/admission.ts";
import { channelOver } from "../edges/grpc/client-channel.ts";
import type { GrpcServer } from "../edges/grpc/server.ts";
import { Tickets } from "../edges/juju/tickets.ts";
import { channelBackend } from "../edges/ui/channel-backend.ts";
import { LoginDoor, type LoggedInUser } from "../edges/ui/login-door.ts";
import { listenPages, type PageListener } from "../edges/ui/tls-listener.ts";
import type { UiBackend, UiSession } from "../edges/ui/backend.ts";
import { LiveTimeline } from "../edges/ui/live-timeline.ts";
import { version } from "../lib/version.ts";
import { UiHello } from "../proto/gen/messages.ts";
import type { ProcessTelemetry } from "../runtime/telemetry/telemetry.ts";
import { formatHostPort, type HostPort } from "./addresses.ts";
import type { WebCertificate } from "./web-certificate.ts";

interface WebInterfaceParts {
  readonly listen: HostPort;
  readonly server: GrpcServer;
  readonly logins: Logins;
  readonly certificate: WebCertificate;
  readonly admission: Admission;
  readonly telemetry: ProcessTelemetry;
}

/**
 * Resolves when the port is open, or will open later, when it has a certificate. `onStop` receives its shutdown. Rejects with
 * ListenError.
 */
export async function serveWebInterface(
  { environment: env }: Manager,
  { listen, server, logins, certificate, admission, telemetry }: WebInterfaceParts,
  onStop: (end: () => Promise<void> | void) => void,
): Promise<void> {
  const standing = (name: Parameters<typeof standingOfLogin>[1]) => standingOfLogin(env.store, name);
  // Every role may read the feed of actors: its users share one index.
  const timeline = new LiveTimeline({ connect: () => Promise.resolve(ownBackend(server)) });
  const door = new LoginDoor({
    port: listen.port,
    checkLogin: (attempt) => logins.check(attempt),
    tickets: new Tickets({ standing }, env.clock),
    open: (user) => timeline.session(sessionOf(server, user)),
  });
  onStop(() => timeline.stop());
  const opened = Promise.withResolvers<PageListener>();
  // Nobody waits for a certificate that comes later.
  opened.promise.catch((error: unknown) => telemetry.log.error({ err: error }, "cannot serve the web interface"));
  let state: "waiting" | "opening" | "stopped" = "waiting";
  onStop(async () => {
    const isOpening = state === "opening";
    state = "stopped";
    if (isOpening) await (await opened.promise.catch(() => null))?.close();
  });
  async function open(credentials: JsonCertificate): Promise<PageListener> {
    const listener = await listenPages({ ...listen, credentials, door, admission, telemetry });
    telemetry.log.info({ listen: formatHostPort(listen) }, "serving the web interface");
    return listener;
  }
  certificate.follow((current) => {
    if (state === "waiting") {
      state = "opening";
      open(current).then(opened.resolve, opened.reject);
    } else if (state === "opening")
      opened.promise.then(
        (listener) => listener.setCredentials(current),
        () => undefined,
      );
  });
  if ((await certificate.tried) !== null) await opened.promise;
}

function ownBackend(server: GrpcServer): UiBackend {
  const [ours, theirs] = duplexPair();
  server.serveSelf(theirs);
  return channelBackend(channelOver(ours, "the manager"), "the manager stops");
}

/** The page's calls take the way of every other user's: through the gRPC server, within the process. */
function sessionOf(server: GrpcServer, user: LoggedInUser): UiSession {
  const [ours, theirs] = duplexPair();
  server.serveUser(theirs, user);
  const backend = channelBackend(
    channelOver(ours, "the manager"),
    "the manager has ended this connection: the login has ended or its role has changed, or the manager stops",
  );
  const { name, role } = user;
  return { hello: UiHello.create({ version, role, user: name, canLogOut: true }), backend };
}
