/**
 * Lets in the browser that opens the address with the token, as Jupyter does.
 *
 * TD1: the token is used up by the first browser that shows it, which gets a cookie instead. The cookie is valid until the
 *      process ends.
 * TD2: only one host name is answered, a random one below `.localhost`, which leads to this machine (RFC 6761 §6.3; browsers
 *      resolve it themselves). Browsers send a cookie to every port of its host, so at `127.0.0.1` servers of other users of the
 *      machine would get it; and pages of other names cannot reach this server (DNS rebinding). No answer tells the name.
 */
import { createHash, randomBytes, timingSafeEqual } from "node:crypto";
import type { IncomingMessage } from "node:http";
import { plainPage, sentencePage, type Answer } from "./answers.ts";
import type { UiSession } from "./backend.ts";
import { cookieOf, mayHaveCookie, type Door, type Visitor } from "./door.ts";

interface TokenDoorOptions {
  readonly port: number;
  /** The command that prints the address, such as `muster ui`. */
  readonly command: string;
  readonly open: () => Promise<UiSession>;
}

/** Length of the token and the cookie: nobody guesses them. */
const secretBytes = 32;
/** The same for the name, of which a part below 64 characters is a label of DNS. */
const nameBytes = 16;
const cookieName = "muster-ui";

const digest = (text: string): Buffer => createHash("sha256").update(text).digest();
/** Takes the same time wherever they differ. */
const areEqual = (one: string, other: string): boolean => timingSafeEqual(digest(one), digest(other));

export class TokenDoor implements Door {
  readonly wrongHost: string;
  /** The address to open, with the token. */
  readonly address: string;
  readonly #options: TokenDoorOptions;
  readonly #token = randomBytes(secretBytes).toString("base64url");
  readonly #secret = randomBytes(secretBytes).toString("base64url");
  readonly #name = `muster-${randomBytes(nameBytes).toString("hex")}.localhost`;
  #isUsed = false;

  constructor(options: TokenDoorOptions) {
    const { port, command } = options;
    this.#options = options;
    this.address = `http://${this.#name}:${port}/?token=${this.#token}`;
    this.wrongHost = `This server answers only at the address that '${command}' printed: open that one.`;
  }

  /** At any port: a tunnel may begin at another one. */
  originOf(host: string): string | null {
    return /^([^:]*)(?::\d{1,5})?$/.exec(host)?.[1] === this.#name ? `http://${host}` : null;
  }

  answer(request: IncomingMessage, url: URL): Answer | null {
    const token = url.pathname === "/" ? url.searchParams.get("token") : null;
    if (token === null) return null;
    const enter = { status: 200, main: '<p><a href="/">Continue</a></p>', goesTo: "/" };
    // A reload of the first address.
    if (this.visitorOf(request) !== null) return plainPage(enter);
    const { command } = this.#options;
    if (!areEqual(token, this.#token) || this.#isUsed) {
      const why =
        this.#isUsed && areEqual(token, this.#token) ? "has been used" : "is not valid, or is of an earlier run";
      return sentencePage(
        401,
        `The token in this address ${why}: run '${command}' again and open the address that it prints.`,
      );
    }
    // A HEAD request, such as of a link checker, does not use it up.
    if (request.method !== "GET") return plainPage(enter);
    this.#isUsed = true;
    const cookie = `${cookieName}=${this.#secret}; Path=/; HttpOnly; SameSite=Strict`;
    return plainPage({ ...enter, headers: { "set-cookie": cookie } });
  }

  visitorOf(request: IncomingMessage): Visitor | null {
    const isKnown = this.#isUsed && areEqual(cookieOf(request, cookieName), this.#secret);
    return isKnown ? { user: "", open: this.#options.open } : null;
  }

  refusal(request: IncomingMessage): Answer {
    const { command } = this.#options;
    const sentence = `This page needs the one-time token: open the address that '${command}' printed, or run it again.`;
    const page = sentencePage(401, sentence);
    return mayHaveCookie(request) ? plainPage({ status: 401, main: `<p>${sentence}</p>`, goesTo: "/?again" }) : page;
  }
}
