/**
 * The TCP port of Docker's Engine API: TLS with a user's certificate, as `docker --tlsverify` presents it.
 *
 * DT1: a request without a current certificate of a user, or of a manager, gets 401 and reaches no handler.
 * DT2: a connection ends when its caller's standing changes, its certificate expires, or its root is not trusted any longer.
 * DT3: connections without a certificate have small budgets, and never displace one with a certificate.
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import type { TLSSocket } from "node:tls";
import type { Clock } from "../../runtime/ports/index.ts";
import type { Admission } from "../grpc/admission/admission.ts";
import { HttpStrangers } from "../grpc/admission/http-strangers.ts";
import { createHttpsPort, refuseUpgrade } from "../grpc/admission/https-port.ts";
import { callerOf } from "../grpc/caller.ts";
import { CertifiedConnections } from "../grpc/certified-connections.ts";
import { isVouchedFor } from "../grpc/cross-signed.ts";
import { standingOf, type Caller, type Membership } from "../grpc/roles.ts";
import { secureContext, type JsonCredentials } from "../juju/secure-context.ts";
import { Failure, refuse } from "./failure.ts";

interface DockerTlsOptions {
  readonly host: string;
  /** 0 chooses a free port. */
  readonly port: number;
  readonly credentials: JsonCredentials;
  readonly clock: Clock;
  readonly membership: Membership;
  readonly admission: Admission;
  readonly answer: (message: IncomingMessage, response: ServerResponse, caller: Caller) => void;
  readonly answerUpgrade: (message: IncomingMessage, socket: Duplex, head: Buffer, caller: Caller) => void;
}

export interface DockerTlsListener {
  readonly port: number;
  setCredentials(credentials: JsonCredentials): void;
  close(): void;
}

/** Time for the handshake, the headers and the whole of a request, in milliseconds. */
const requestTimeoutMs = 60_000;
/** Time that an idle connection is kept for the next request, in milliseconds. */
const idleTimeoutMs = 100_000;

interface Connection {
  readonly caller: Caller;
  readonly socket: TLSSocket;
}

/** Rejects with ListenError. */
export async function listenDockerTls(options: DockerTlsOptions): Promise<DockerTlsListener> {
  const { admission, answer, answerUpgrade, clock, credentials, host, membership, port: wanted } = options;
  const strangers = new HttpStrangers(admission, "docker");
  const connections = new WeakMap<Socket, Connection>();
  let rootPem = credentials.acceptedPem;
  const certified = new CertifiedConnections<Connection>({
    clock,
    membership,
    rootPem,
    handshakeTimeoutMs: requestTimeoutMs,
    end: ({ socket }) => socket.destroy(),
  });
  const port = createHttpsPort({
    host,
    port: wanted,
    name: "Docker's Engine API",
    flag: "--docker-listen",
    label: "docker",
    context: secureContext(credentials),
    requestCert: true,
    admission,
    strangers,
    requestTimeoutMs,
    idleTimeoutMs,
  });
  port.server.on("secureConnection", (socket) => {
    const connection = { caller: callerOf(socket, rootPem), socket };
    connections.set(socket, connection);
    certified.add(connection, (roots, nowMs) => isVouchedFor(socket, roots, nowMs));
    socket.once("close", () => certified.remove(connection));
    if (isKnown(connection.caller)) strangers.welcome(socket);
  });
  /** Null: nobody. */
  const callerOn = (socket: Socket): Caller | null => {
    const connection = connections.get(socket);
    if (connection !== undefined) certified.checkExpiry(connection);
    return connection !== undefined && isKnown(connection.caller) ? connection.caller : null;
  };
  port.server.on("upgrade", (message: IncomingMessage, socket: Duplex, head: Buffer) => {
    const caller = callerOn(message.socket);
    if (caller !== null) return answerUpgrade(message, socket, head, caller);
    const body = `${JSON.stringify({ message: unknownCaller.message })}\n`;
    refuseUpgrade(
      socket,
      "HTTP/1.1 401 Unauthorized\r\nContent-Type: application/json\r\nConnection: close\r\n" +
        `Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
    );
  });
  port.server.on("request", (message, response) => {
    const caller = callerOn(message.socket);
    const work = (): void => (caller === null ? refuse(response, unknownCaller) : answer(message, response, caller));
    strangers.handle(message, response, work, caller !== null);
  });
  /** DT1 */
  function isKnown(caller: Caller): boolean {
    const standing = standingOf(caller, membership);
    return standing !== "nobody" && standing !== "worker";
  }
  return {
    port: await port.listen(),
    setCredentials(next) {
      rootPem = next.acceptedPem;
      port.setContext(secureContext(next));
      certified.setRoots(rootPem);
    },
    close() {
      certified.close();
      port.close();
      port.closeAllConnections();
    },
  };
}

const unknownCaller = new Failure(
  401,
  "a certificate of a user of this cluster is required: get one with 'muster user certificate NAME -o DIR', and pass " +
    "--tlsverify --tlscacert DIR/ca.pem --tlscert DIR/credentials.pem --tlskey DIR/credentials.pem",
);
