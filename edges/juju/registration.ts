/**
 * `POST /register`, to which `juju register` sends a registration (reference §2.6): `{user, nonce, cipher-text}`, in which the
 * user's new password is sealed (NaCl secretbox) with the secret key from AddUser or ResetPassword. The client does not know
 * the cluster's root yet, so the reply, which contains it, is sealed with the same key: this proves that the cluster sent it.
 *
 * RE1: a request without the right key changes nothing and reveals nothing; all such requests get the same reply.
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import { randomBytes } from "node:crypto";
import nacl from "tweetnacl";
import type { JsonApi, LoginName } from "../../runtime/ports/json-api.ts";
import { answerPost, type Answer } from "./http-answers.ts";
import { controllerUuid } from "./model.ts";
import { macaroonCookie, type Tickets } from "./tickets.ts";

export interface RegistrationParts {
  readonly api: Pick<JsonApi, "register">;
  readonly tickets: Tickets;
  clusterId(): string;
  rootPem(): string;
  loginName(tag: string): LoginName | null;
}

/**
 * In milliseconds, as in Juju. With the cookie in the reply, the command logs in to list models without asking for the password
 * a third time. The lifetime is short because the client cannot verify the server of this connection.
 */
export const registeredTicketMs = 120_000;

/** An error over HTTP in Juju's format. */
const refused = (status: number, message: string, code: string): Answer => ({
  status,
  body: { error: { message, code } },
});

interface Sealed {
  readonly user: string;
  readonly nonce: Uint8Array;
  readonly box: Uint8Array;
}

function bytesOf(value: unknown): Uint8Array {
  return typeof value === "string" ? Uint8Array.from(Buffer.from(value, "base64")) : new Uint8Array();
}

/** Null if the body is not a registration. */
function sealedOf(body: string): Sealed | null {
  try {
    const { user, nonce, "cipher-text": box } = (JSON.parse(body) ?? {}) as Readonly<Record<string, unknown>>;
    const sealed = { user: typeof user === "string" ? user : "", nonce: bytesOf(nonce), box: bytesOf(box) };
    const isWhole =
      sealed.nonce.length === nacl.secretbox.nonceLength && sealed.box.length >= nacl.secretbox.overheadLength;
    return sealed.user !== "" && isWhole ? sealed : null;
  } catch {
    return null;
  }
}

/** The password in the box, which may be empty; null if the key is wrong. */
function passwordIn({ nonce, box }: Sealed, secretKey: Uint8Array): string | null {
  const opened = nacl.secretbox.open(box, nonce, secretKey);
  if (opened === null) return null;
  try {
    const { password } = (JSON.parse(Buffer.from(opened).toString("utf8")) ?? {}) as { readonly password?: unknown };
    return typeof password === "string" ? password : "";
  } catch {
    return "";
  }
}

/** Bytes in Go's JSON. */
const base64 = (bytes: Uint8Array): string => Buffer.from(bytes).toString("base64");

async function register(body: string, address: string, parts: RegistrationParts): Promise<Answer> {
  const sealed = sealedOf(body);
  if (sealed === null)
    return refused(400, "invalid registration: expected user, nonce (24 bytes) and cipher-text", "bad request");
  const name = parts.loginName(sealed.user);
  const outcome = await parts.api.register({ name, address, open: (secretKey) => passwordIn(sealed, secretKey) });
  switch (outcome.kind) {
    case "busy":
      return refused(503, "try again", "try again");
    case "refused":
      return refused(401, "invalid registration: it was used or has expired", "unauthorized access");
    case "unfit":
      return refused(400, outcome.reason, "bad request");
    case "registered": {
      const payload = { "ca-cert": parts.rootPem(), "controller-uuid": controllerUuid(parts.clusterId()) };
      const nonce = Uint8Array.from(randomBytes(nacl.secretbox.nonceLength));
      const box = nacl.secretbox(Uint8Array.from(Buffer.from(JSON.stringify(payload))), nonce, outcome.secretKey);
      const cookie = name === null ? {} : ticketFor(name, parts);
      return { status: 200, body: { nonce: base64(nonce), "cipher-text": base64(box) }, headers: cookie };
    }
  }
}

function ticketFor(name: LoginName, { tickets }: RegistrationParts): Record<string, string> {
  return { "set-cookie": macaroonCookie(tickets.issue(name, registeredTicketMs), registeredTicketMs) };
}

/** Whether the request was for this path; if so, it is answered asynchronously and its connection closed. */
export function answersRegistration(
  request: IncomingMessage,
  response: ServerResponse,
  parts: RegistrationParts,
): boolean {
  if ((request.url ?? "").split("?", 1)[0] !== "/register") return false;
  answerPost(request, response, refused, (body) => register(body, request.socket.remoteAddress ?? "", parts));
  return true;
}
