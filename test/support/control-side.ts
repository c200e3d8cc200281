/** Sends requests to Control in turn, to any implementation, using what earlier answers contained. */
import type { ExecutionContext } from "ava";
import { connectUnix } from "../../edges/grpc/client.ts";
import type { MethodDescriptor } from "../../proto/codec.ts";
import { ControlService } from "../../proto/gen/messages.ts";
import { RpcError, Status, type RpcChannel } from "../../runtime/ports/rpc.ts";

export type Json = Readonly<Record<string, unknown>>;

/** A manager's answers so far, by object name. */
export class Side {
  readonly #channel: RpcChannel;
  readonly #objects = new Map<string, { readonly id: string; readonly version: number }>();

  constructor(channel: RpcChannel) {
    this.#channel = channel;
  }

  id(name: string): string {
    return this.#objects.get(name)?.id ?? "";
  }

  version(name: string): Json {
    return { index: this.#objects.get(name)?.version ?? 0 };
  }

  /** `OK` and the names of the listed objects, or the status and its text with names in place of ids. */
  async ask(name: string, json: Json): Promise<string> {
    const method = ControlService.methods[name as "GetNode"] as unknown as MethodDescriptor<unknown, unknown>;
    try {
      const answer = method.response.toJson(
        await this.#channel.unary(method, method.request.fromJson(json), { timeoutMs: 20_000 }),
      );
      return `OK ${this.#learn(answer)}`.trim();
    } catch (error) {
      if (!(error instanceof RpcError)) throw error;
      return `${nameOf(error.code)} ${this.unnamed(error.message)}`;
    }
  }

  /** Remembers each object of an answer; returns their names in order. */
  #learn(answer: Json): string {
    const names: string[] = [];
    for (const value of Object.values(answer).flat()) {
      const object = value as {
        readonly id?: string;
        readonly meta?: { readonly version?: { readonly index?: number } };
        readonly annotations?: { readonly name?: string };
        readonly spec?: { readonly annotations?: { readonly name?: string } };
      };
      const name = object.spec?.annotations?.name ?? object.annotations?.name ?? "";
      if (object.id === undefined) continue;
      if (name !== "") this.#objects.set(name, { id: object.id, version: object.meta?.version?.index ?? 0 });
      names.push(name);
    }
    return names.toSorted().join(" ");
  }

  /** Replaces ids with names. */
  unnamed(text: string): string {
    let result = text;
    for (const [name, { id }] of this.#objects) result = result.replaceAll(id, `<${name}>`);
    return result;
  }
}

function nameOf(code: number): string {
  return Object.entries(Status).find(([, value]) => value === code)?.[0] ?? String(code);
}

export interface Step {
  readonly method: string;
  readonly request: (side: Side) => Json;
  /** Where ours differs from the stock manager on purpose: each one's answer, as a pattern for a whole line. */
  readonly differs: { readonly stock: RegExp; readonly ours: RegExp } | null;
}

export function step(method: string, request: Json | ((side: Side) => Json), differs: Step["differs"] = null): Step {
  return { method, request: typeof request === "function" ? request : () => request, differs };
}

/** Calls a socket without TLS; closed with the test. */
export async function sideAt(t: ExecutionContext, socket: string): Promise<Side> {
  const channel = await connectUnix(socket);
  t.teardown(() => channel.close());
  const side = new Side(channel);
  await side.ask("ListClusters", {});
  return side;
}

export interface StepGroup {
  readonly title: string;
  /** In order; each group runs on its own cluster. */
  readonly steps: readonly Step[];
}

export function group(title: string, steps: () => readonly Step[]): StepGroup {
  return { title, steps: steps() };
}

export const base64 = (text: string): string => Buffer.from(text).toString("base64");
/** Labels of the objects created here. */
export const labels = { team: "a" };
