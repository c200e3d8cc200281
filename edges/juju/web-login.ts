/**
 * Where Juju's command asks for a password (reference §2.5): a login without one is sent to `POST /auth/discharge`, which names the form
 * `POST /auth/form`; that takes user and password and gives a ticket, with which the first gives the macaroon that logs in.
 * A ticket in a cookie of `/register` does as well: the client has that for this address, and looks for the macaroons of a login
 * under the controller's UUID, so that it shows the cookie here and not there.
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { JsonApi, LoginName } from "../../runtime/json-api.ts";
import { answerPost, type Answer } from "./http-answers.ts";
import { identifiersInCookies, interaction, macaroon, type Tickets } from "./tickets.ts";

export interface WebLoginParts {
  readonly api: Pick<JsonApi, "checkLogin">;
  readonly tickets: Tickets;
  loginName(tag: string): LoginName | null;
}

const refused = (status: number, Message: string, Code: string): Answer => ({ status, body: { Message, Code } });

/** A value that is plain or, with `64` behind its name, base64. */
function field(form: URLSearchParams, name: string): string {
  return form.get(name) ?? Buffer.from(form.get(`${name}64`) ?? "", "base64url").toString("utf8");
}

/** Go's client puts all of it in the query of its POST; it may as well be in the body. */
function discharge(query: string, body: string, cookie: string, { tickets, loginName }: WebLoginParts): Answer {
  const form = new URLSearchParams(`${query}&${body}`);
  const shown = field(form, "token");
  const ticket = shown === "" ? tickets.shownFor(identifiersInCookies(cookie), loginName(field(form, "id"))) : shown;
  if (ticket === null) {
    const Info = { InteractionMethods: { [interaction]: { url: "/auth/form" } } };
    return { status: 407, body: { Message: "a password is required", Code: "interaction required", Info } };
  }
  if (tickets.holder(ticket) === null) return refused(401, "invalid token", "unauthorized access");
  return { status: 200, body: { Macaroon: macaroon(ticket, []) } };
}

async function login(body: string, address: string, { api, tickets, loginName }: WebLoginParts): Promise<Answer> {
  let form: { readonly user?: unknown; readonly password?: unknown };
  try {
    form = (JSON.parse(body) as { form?: typeof form }).form ?? {};
  } catch {
    return refused(400, "the body is not JSON", "bad request");
  }
  const { user, password } = form;
  if (typeof user !== "string" || typeof password !== "string")
    return refused(400, "the form has a user and a password", "bad request");
  const name = loginName(`user-${user}`);
  const { kind } = await api.checkLogin({ name, password, address, certifiedNode: null });
  if (kind === "busy") return refused(503, "try again", "try again");
  if (kind === "refused" || name === null)
    return refused(401, "invalid entity name or password", "unauthorized access");
  const value = Buffer.from(tickets.issue(name)).toString("base64");
  return { status: 200, body: { token: { kind: interaction, value } } };
}

/** Whether it was for here; it is answered later then, and its connection closed. */
export function answersWebLogin(request: IncomingMessage, response: ServerResponse, parts: WebLoginParts): boolean {
  const [path, query = ""] = (request.url ?? "").split("?", 2);
  if (path !== "/auth/discharge" && path !== "/auth/form") return false;
  answerPost(request, response, refused, (body) =>
    path === "/auth/discharge"
      ? discharge(query, body, request.headers.cookie ?? "", parts)
      : login(body, request.socket.remoteAddress ?? "", parts),
  );
  return true;
}
