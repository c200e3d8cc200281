/**
 * Password logins of Juju's command (reference §2.5): a login without a password is sent to `POST /auth/discharge`, which names
 * the form `POST /auth/form`. The form takes user and password and returns a ticket, which `/auth/discharge` exchanges for a
 * macaroon. A ticket in a cookie from `/register` works too: the client stores it for this address, and looks up macaroons for
 * logins by the controller's UUID, so it sends the cookie here and not with the login.
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { JsonApi, LoginName } from "../../runtime/ports/json-api.ts";
import { answerPost, type Answer } from "./http-answers.ts";
import { identifiersInCookies, interaction, macaroon, type Tickets } from "./tickets.ts";

interface WebLoginParts {
  readonly api: Pick<JsonApi, "checkLogin">;
  readonly tickets: Tickets;
  loginName(tag: string): LoginName | null;
}

const refused = (status: number, Message: string, Code: string): Answer => ({ status, body: { Message, Code } });

/** A plain value or, under the name with suffix `64`, a base64 value. */
function field(form: URLSearchParams, name: string): string {
  return form.get(name) ?? Buffer.from(form.get(`${name}64`) ?? "", "base64url").toString("utf8");
}

/** Go's client puts the form in the query of its POST; the body is accepted too. */
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
    return refused(400, "expected a form with user and password", "bad request");
  const name = loginName(`user-${user}`);
  const { kind } = await api.checkLogin({ name, password, address, certifiedNode: null });
  if (kind === "busy") return refused(503, "try again", "try again");
  if (kind === "refused" || name === null)
    return refused(401, "invalid entity name or password", "unauthorized access");
  const value = Buffer.from(tickets.issue(name)).toString("base64");
  return { status: 200, body: { token: { kind: interaction, value } } };
}

/** Whether the request was for these paths; if so, it is answered asynchronously and its connection closed. */
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
