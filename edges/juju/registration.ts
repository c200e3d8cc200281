/**
 * `POST /register`, where Juju's command comes with a registration string (reference §2.6): `{user, nonce, cipher-text}`, in which the
 * password that the user chose is sealed by NaCl's secretbox with the secret key that AddUser or ResetPassword gave. The client does not
 * know the cluster's root yet, so that the answer, which tells it, is sealed with the same key: whoever can do that is the cluster.
 *
 * RE1: nothing is done for, and nothing told to, whoever has not shown the key; all who fail are answered alike.
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import { randomBytes } from "node:crypto";
import nacl from "tweetnacl";
import type { JsonApi, LoginName } from "../../runtime/json-api.ts";
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
 * In milliseconds, as with Juju's own servers: with the cookie of the answer the command logs in, to list models, without asking for the
 * password a third time. It goes over a connection whose server the client could not check, so that it is good for no longer.
 */
export const registeredTicketMs = 120_000;

/** As Juju's servers write errors over HTTP. */
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

/** Null when it is no request to register. */
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

/** The password in the box, which may be empty; null when the key is another. */
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

/** Go's JSON has bytes as base64. */
const base64 = (bytes: Uint8Array): string => Buffer.from(bytes).toString("base64");

async function register(body: string, address: string, parts: RegistrationParts): Promise<Answer> {
  const sealed = sealedOf(body);
  if (sealed === null)
    return refused(400, "a registration has a user, a nonce of 24 bytes and a cipher-text", "bad request");
  const name = parts.loginName(sealed.user);
  const outcome = await parts.api.register({ name, address, open: (secretKey) => passwordIn(sealed, secretKey) });
  switch (outcome.kind) {
    case "busy":
      return refused(503, "try again", "try again");
    case "refused":
      return refused(401, "the registration is not valid: it was used or has expired", "unauthorized access");
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

/** Whether it was for here; it is answered later then, and its connection closed. */
export function answersRegistration(
  request: IncomingMessage,
  response: ServerResponse,
  parts: RegistrationParts,
): boolean {
  if ((request.url ?? "").split("?", 1)[0] !== "/register") return false;
  answerPost(request, response, refused, (body) => register(body, request.socket.remoteAddress ?? "", parts));
  return true;
}
