/**
 * Asks registries of images which digest a tag has, over their HTTP API (the OCI distribution specification), with the credentials of the
 * client. Like an engine, over TLS, and also without it for registries on this machine.
 *
 * RG1: each question ends within `timeoutMs`, and reads at most `bytesMax` of an answer.
 * RG2: credentials go only to the registry, and to the token server that it names.
 */
import { createHash } from "node:crypto";
import { badRequest, Failure } from "./failure.ts";

/** Time for a whole question, in milliseconds: clients wait for as long as they create a service. */
const timeoutMs = 15_000;
/** Registries accept no larger manifests, in bytes. */
const bytesMax = 4 * 1024 * 1024;

const listTypes: readonly string[] = [
  "application/vnd.docker.distribution.manifest.list.v2+json",
  "application/vnd.oci.image.index.v1+json",
];
const manifestTypes = [
  "application/vnd.docker.distribution.manifest.v2+json",
  "application/vnd.oci.image.manifest.v1+json",
  ...listTypes,
];

export interface Credentials {
  readonly username: string;
  readonly password: string;
}

export interface Reference {
  /** With a port where it is not the usual one. */
  readonly host: string;
  readonly repository: string;
  /** A tag or a digest. */
  readonly version: string;
}

const hub = "registry-1.docker.io";
const digestForm = /^[a-z0-9]+(?:[.+_-][a-z0-9]+)*:[0-9a-fA-F]{32,}$/;

const pathPart = "[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*";
const pathForm = new RegExp(`^${pathPart}(?:/${pathPart})*$`);

/** `alpine`, `example.org:5000/a/b:1` or `a@sha256:…`. Throws Failure. */
export function parseReference(text: string): Reference {
  const [named = "", digest] = text.split("@", 2);
  const slash = named.indexOf("/");
  const first = slash < 0 ? "" : named.slice(0, slash);
  const isHost = first.includes(".") || first.includes(":") || first === "localhost";
  const rest = isHost ? named.slice(slash + 1) : named;
  const colon = rest.lastIndexOf(":");
  const path = colon < 0 ? rest : rest.slice(0, colon);
  const tag = colon < 0 ? "latest" : rest.slice(colon + 1);
  const isValid =
    pathForm.test(path.toLowerCase()) &&
    /^\w[\w.-]{0,127}$/.test(tag) &&
    (digest === undefined || digestForm.test(digest)) &&
    (!isHost || /^[a-zA-Z0-9.-]+(?::\d+)?$/.test(first)) &&
    text.length <= 1_024;
  if (!isValid) throw badRequest("invalid reference format");
  if (path !== path.toLowerCase()) throw badRequest("invalid reference format: repository name must be lowercase");
  const isOfHub = !isHost || first === "docker.io" || first === "index.docker.io";
  return {
    host: isOfHub ? hub : first,
    repository: isOfHub && !path.includes("/") ? `library/${path}` : path,
    version: digest ?? tag,
  };
}

/** The name of an image as Docker shows it, without tag and digest. An invalid one is returned unchanged. */
export function familiarName(image: string): string {
  try {
    const { host, repository } = parseReference(image);
    return host === hub ? repository.replace(/^library\//, "") : `${host}/${repository}`;
  } catch {
    return image;
  }
}

interface Descriptor {
  readonly mediaType: string;
  readonly digest: string;
  readonly size: number;
}

interface Resolved {
  readonly Descriptor: Descriptor;
  readonly Platforms: readonly unknown[];
}

/** The registries that may be asked without TLS. */
function isOwnMachine(host: string): boolean {
  return /^(?:localhost|127(?:\.\d+){3})(?::\d+)?$/.test(host);
}

function basic({ password, username }: Credentials): string {
  return `Basic ${Buffer.from(`${username}:${password}`).toString("base64")}`;
}

/** RG1 */
async function bodyOf(answer: Response): Promise<Buffer> {
  const parts: Uint8Array[] = [];
  let size = 0;
  for await (const part of answer.body ?? []) {
    size += (part as Uint8Array).length;
    if (size > bytesMax) throw new Failure(500, `the registry's answer has more than ${bytesMax} bytes`);
    parts.push(part as Uint8Array);
  }
  return Buffer.concat(parts);
}

function jsonOf(body: Buffer): Readonly<Record<string, unknown>> {
  try {
    const value: unknown = JSON.parse(body.toString("utf8"));
    return typeof value === "object" && value !== null ? (value as Readonly<Record<string, unknown>>) : {};
  } catch {
    return {};
  }
}

/** One conversation with a registry. */
export class Registry {
  readonly #host: string;
  readonly #credentials: Credentials | null;
  readonly #signal: AbortSignal;
  #authorization: string | null = null;
  #scheme: "https" | "http" = "https";

  /** `leaving`: aborts when the client is gone. */
  constructor(host: string, credentials: Credentials | null, leaving: AbortSignal) {
    this.#host = host;
    this.#credentials = credentials;
    this.#signal = AbortSignal.any([leaving, AbortSignal.timeout(timeoutMs)]);
  }

  /** Rejects with Failure. */
  async resolve({ repository, version }: Reference): Promise<Resolved> {
    const answer = await this.#get(`/v2/${repository}/manifests/${version}`, { accept: manifestTypes.join(", ") });
    const body = await bodyOf(answer);
    if (!answer.ok) throw this.#refusal(answer.status, body);
    const manifest = jsonOf(body);
    const mediaType = (answer.headers.get("content-type") ?? "").split(";", 1)[0] ?? "";
    const digest = `sha256:${createHash("sha256").update(body).digest("hex")}`;
    if (digestForm.test(version) && version.startsWith("sha256:") && version !== digest)
      throw new Failure(500, `the registry answered with another image than ${version}`);
    return {
      Descriptor: { mediaType, digest, size: body.length },
      Platforms: listTypes.includes(mediaType)
        ? ((manifest["manifests"] ?? []) as readonly { readonly platform?: unknown }[]).map(
            ({ platform }) => platform ?? {},
          )
        : await this.#platforms(repository, manifest),
    };
  }

  /** Rejects with Failure when the registry does not accept the credentials. */
  async logIn(): Promise<void> {
    const answer = await this.#get("/v2/", {});
    const body = await bodyOf(answer);
    if (!answer.ok) throw this.#refusal(answer.status, body);
  }

  /** An image's own configuration names its platform. */
  async #platforms(repository: string, manifest: Readonly<Record<string, unknown>>): Promise<readonly unknown[]> {
    const { digest = "" } = (manifest["config"] ?? {}) as { readonly digest?: string };
    if (!digestForm.test(digest)) return [];
    const answer = await this.#get(`/v2/${repository}/blobs/${digest}`, {});
    const { architecture, os } = jsonOf(await bodyOf(answer));
    return answer.ok ? [{ architecture, os }] : [];
  }

  async #get(path: string, headers: Readonly<Record<string, string>>): Promise<Response> {
    const first = await this.#fetch(path, headers);
    const challenge = first.headers.get("www-authenticate");
    if (first.status !== 401 || challenge === null || this.#authorization !== null) return first;
    await first.body?.cancel();
    this.#authorization = await this.#answerTo(challenge);
    return this.#authorization === null ? first : this.#fetch(path, headers);
  }

  async #fetch(path: string, headers: Readonly<Record<string, string>>): Promise<Response> {
    const authorization = this.#authorization === null ? {} : { authorization: this.#authorization };
    const url = (): string => `${this.#scheme}://${this.#host}${path}`;
    try {
      return await this.#send(url(), { ...headers, ...authorization });
    } catch (error) {
      if (this.#scheme === "http" || !isOwnMachine(this.#host) || this.#signal.aborted) throw error;
      this.#scheme = "http";
      return this.#send(url(), { ...headers, ...authorization });
    }
  }

  async #send(url: string, headers: Readonly<Record<string, string>>): Promise<Response> {
    try {
      return await fetch(url, { headers, signal: this.#signal });
    } catch (error) {
      const { cause, message } = error as Error;
      const why = this.#signal.aborted
        ? `no answer within ${timeoutMs / 1_000} s`
        : cause instanceof Error
          ? cause.message
          : message;
      throw new Failure(500, `cannot reach the registry: Get ${JSON.stringify(url)}: ${why}`);
    }
  }

  /** The header that answers a registry's challenge; null if there is none. RG2 */
  async #answerTo(challenge: string): Promise<string | null> {
    if (/^basic\b/i.test(challenge)) return this.#credentials === null ? null : basic(this.#credentials);
    const fields = new Map(
      [...challenge.matchAll(/(\w+)="([^"]*)"/g)].map(([, name = "", value = ""]) => [name.toLowerCase(), value]),
    );
    const realm = fields.get("realm") ?? "";
    if (!/^bearer\b/i.test(challenge) || !URL.canParse(realm)) return null;
    const url = new URL(realm);
    if (url.protocol !== "https:" && !isOwnMachine(url.host)) return null;
    for (const name of ["service", "scope"]) {
      const value = fields.get(name);
      if (value !== undefined) url.searchParams.set(name, value);
    }
    const answer = await this.#send(
      url.href,
      this.#credentials === null ? {} : { authorization: basic(this.#credentials) },
    );
    const body = await bodyOf(answer);
    if (!answer.ok) throw this.#refusal(answer.status, body);
    const { access_token: other, token = other } = jsonOf(body);
    return typeof token === "string" ? `Bearer ${token}` : null;
  }

  #refusal(status: number, body: Buffer): Failure {
    const [error] = (jsonOf(body)["errors"] ?? []) as readonly { readonly code?: string; readonly message?: string }[];
    const message = error?.message ?? `status ${status}`;
    // As a stock engine shows it: the code in words.
    const code = error?.code?.toLowerCase().replaceAll("_", " ");
    if (status === 404 || status === 401 || status === 403) return new Failure(status, code ?? message);
    return new Failure(500, `the registry ${this.#host} answered with status ${status}: ${message}`);
  }
}
