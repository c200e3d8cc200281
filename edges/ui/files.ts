/** The files of `ui/dist/`, read once and kept, also compressed: some 2 MB. */
import { createHash } from "node:crypto";
import type { IncomingMessage } from "node:http";
import { extname } from "node:path";
import { gzipSync } from "node:zlib";
import { installedFile, installedNames, installedPath } from "../../lib/installation.ts";
import { UserError } from "../../lib/user-error.ts";
import type { Answer } from "./answers.ts";

const folder = "ui/dist/";

const types: Readonly<Record<string, string>> = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".txt": "text/plain; charset=utf-8",
  ".svg": "image/svg+xml",
};

/** Files of the pages that are shown without a session. */
const publicFiles: ReadonlySet<string> = new Set(["/door.css", "/door.js"]);

interface PageFile {
  readonly type: string;
  readonly tag: string;
  readonly plain: Buffer;
  readonly compressed: Buffer;
}

export class PageFiles {
  readonly #files: ReadonlyMap<string, PageFile>;

  /** Throws UserError if the page was not built. */
  constructor() {
    const files = new Map<string, PageFile>();
    for (const name of installedNames(folder)) {
      const type = types[extname(name)];
      if (type === undefined) continue;
      const plain = installedFile(folder + name);
      const tag = `"${createHash("sha256").update(plain).digest("base64url")}"`;
      files.set(`/${name}`, { type, tag, plain, compressed: gzipSync(plain) });
    }
    const index = files.get("/index.html");
    if (index === undefined)
      throw new UserError(
        `the web interface is not built: ${installedPath(folder)} has no index.html: run 'npm run setup'`,
      );
    this.#files = files.set("/", index);
  }

  has(path: string): boolean {
    return this.#files.has(path);
  }

  isPublic(path: string): boolean {
    return publicFiles.has(path) && this.has(path);
  }

  /** Null if there is no such file. */
  answer(path: string, { headers }: Pick<IncomingMessage, "headers">): Answer | null {
    const file = this.#files.get(path);
    if (file === undefined) return null;
    const { type, tag, plain, compressed } = file;
    // Kept by the browser, but asked for each time: an upgraded server has other files.
    const common = { "content-type": type, etag: tag, "cache-control": "private, no-cache", vary: "accept-encoding" };
    if (headers["if-none-match"] === tag) return { status: 304, headers: common, body: "" };
    const accepts = /\bgzip\b/.test(String(headers["accept-encoding"] ?? ""));
    return accepts
      ? { status: 200, headers: { ...common, "content-encoding": "gzip" }, body: compressed }
      : { status: 200, headers: common, body: plain };
  }
}
