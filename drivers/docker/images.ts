/** The engine's images: lists local ones, and pulls others. */
import { retryable } from "../../edges/plugin/server/index.ts";
import { isAbsent, type Engine } from "./engine.ts";
import type { DockerConfig } from "./fields.ts";

/** One message of a pull's answer. */
interface Progress {
  readonly error?: string;
}

/** Adds `latest` if there is neither tag nor digest: otherwise the engine would pull every tag. */
function whole(image: string): string {
  return image.includes("@") || /:[^/]+$/.test(image) ? image : `${image}:latest`;
}

type Wants = Pick<DockerConfig, "auth" | "force_pull" | "refresh" | "registry_auth">;

function credentials({ auth, registry_auth: header }: Wants): Readonly<Record<string, string>> {
  if (auth === null) return header === null || header === "" ? {} : { "X-Registry-Auth": header };
  const { username, password, server_address: serveraddress } = auth;
  return {
    "X-Registry-Auth": Buffer.from(JSON.stringify({ username, password, serveraddress })).toString("base64url"),
  };
}

export class Images {
  readonly #engine: Engine;
  readonly #timeoutMs: number;
  /** Pulls and imports in progress: tasks that start together share one. */
  readonly #pulls = new Map<string, Promise<void>>();

  constructor(engine: Engine, timeoutMs: number) {
    this.#engine = engine;
    this.#timeoutMs = timeoutMs;
  }

  /** Makes the image available. Failures of the registry, or on the way to it, are retryable. */
  async need(image: string, options: Wants, tell: (message: string) => void) {
    const isWanted = options.force_pull || options.refresh;
    if (!isWanted && (await this.#isThere(image))) return;
    tell(`pulling ${image}`);
    const key = JSON.stringify([image, options.auth, options.registry_auth]);
    try {
      await this.#once(key, () => this.#pull(image, options));
    } catch (error) {
      if (options.force_pull || !(await this.#isThere(image))) throw error;
      tell(`${(error as Error).message}: using the local image`);
    }
  }

  /** Makes an image available that is built here from an archive of its files. */
  async make(image: string, archive: Buffer): Promise<void> {
    // Each import creates another image, and the last one gets the name.
    await this.#once(image, async () => {
      if (await this.#isThere(image)) return;
      const query = { fromSrc: "-", repo: image };
      await this.#followed(await this.#engine.stream("POST", "/images/create", { query, archive }));
    });
  }

  #once(key: string, pull: () => Promise<void>): Promise<void> {
    let running = this.#pulls.get(key);
    if (running === undefined) {
      running = pull().finally(() => this.#pulls.delete(key));
      this.#pulls.set(key, running);
    }
    return running;
  }

  async #isThere(image: string): Promise<boolean> {
    try {
      await this.#engine.json("GET", `/images/${image}/json`);
      return true;
    } catch (error) {
      if (isAbsent(error)) return false;
      throw error;
    }
  }

  async #pull(image: string, wants: Wants): Promise<void> {
    try {
      const signal = AbortSignal.timeout(this.#timeoutMs);
      const query = { fromImage: whole(image) };
      const headers = credentials(wants);
      const answer = await this.#engine.stream("POST", "/images/create", { query, headers, signal, timeoutMs: null });
      await this.#followed(answer);
    } catch (error) {
      throw retryable(`cannot pull ${image}: ${(error as Error).message}`);
    }
  }

  /** Reads to the end; rejects with any error on the way. */
  async #followed(answer: AsyncIterable<unknown>): Promise<void> {
    let line = "";
    for await (const chunk of answer) {
      const lines = `${line}${String(chunk)}`.split("\n");
      line = lines.pop() ?? "";
      for (const { error } of lines.filter((each) => each.trim() !== "").map((each) => JSON.parse(each) as Progress))
        if (error !== undefined) throw new Error(error);
    }
  }
}
