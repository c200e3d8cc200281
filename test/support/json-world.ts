/** The JSON API's facades on a test manager, called as a connection calls them, without a socket. */
import type { ExecutionContext } from "ava";
import { bootstrapCluster } from "../../actors/manager/bootstrap.ts";
import { run, Registry } from "../../edges/juju/dispatch.ts";
import type { Identity, Session } from "../../edges/juju/facade.ts";
import type { Shape } from "../../edges/juju/shape.ts";
import { Params } from "../../edges/juju/params.ts";
import { RequestError } from "../../edges/juju/request-error.ts";
import { Resources } from "../../edges/juju/resources.ts";
import { requestErrorOf } from "../../edges/juju/rpc-failure.ts";
import { encodeResult } from "../../edges/juju/wire/encode.ts";
import * as pki from "../../lib/pki/index.ts";
import { Scrypt } from "../../runtime/system/scrypt.ts";
import { world } from "./control.ts";
import { cheapScrypt } from "./json-api.ts";
import { testFacades, type TestFacadesOptions } from "./json-facades.ts";
import { call } from "./manager.ts";

/** A result as a client reads it. */
export type Reply = Record<string, unknown>;

export interface Asked {
  readonly type: string;
  readonly request: string;
  readonly id?: string;
  readonly version?: number;
  readonly params?: unknown;
}

const admin: Identity = { kind: "user", name: "admin", role: "admin" };

export type JsonWorldOptions = Omit<TestFacadesOptions, "control" | "passwords">;

export async function jsonWorld(t: ExecutionContext, options: JsonWorldOptions = {}) {
  const founded = world();
  await bootstrapCluster(founded.env, pki, { advertise: "192.0.2.1:2377" });
  const { env, control, clock } = founded;
  const passwords = new Scrypt(cheapScrypt);
  const { facades, feed, stop } = testFacades(env, { ...options, control, passwords });
  const registry = new Registry(facades);
  t.teardown(stop);

  function connect(shape: Shape, identity: Identity = admin, scope: Session["scope"] = "model") {
    const resources = new Resources();
    const session: Session = {
      tag: `${identity.kind}-${identity.kind === "user" ? identity.name : "x"}`,
      identity,
      scope,
      resources,
      clientMajor: 3,
      signal: new AbortController().signal,
    };
    return {
      resources,
      /** The response; rejects with RequestError. */
      async ask({ type, request, id = "", version, params }: Asked): Promise<Reply> {
        const found = registry.find({ shape, type, version: version ?? (shape === "V0" ? null : 0) }, 0);
        try {
          const result = await run(found.facade, {
            shape,
            type,
            version: found.version,
            id,
            request,
            params: Params.of(params),
            session,
            rpc: { ...call({ local: false, address: "192.0.2.9", user: session.tag }), method: `${type}/${request}` },
          });
          const reply = JSON.parse(encodeResult(shape, 1, result)) as Reply;
          return (shape === "V0" ? reply["Response"] : reply["response"]) as Reply;
        } catch (error) {
          throw requestErrorOf(error) ?? error;
        }
      },
    };
  }

  /** Runs the clock until nothing more happens within `ms`. */
  async function settle(ms = 1_000): Promise<void> {
    for (let passed = 0; passed < ms; passed += 100) {
      await clock.run({ untilMs: clock.now() + 100 });
      await new Promise((resolve) => setImmediate(resolve));
    }
  }

  return { ...founded, feed, facades, passwords, connect, settle };
}

export async function failureOf(run: () => Promise<unknown>): Promise<{ message: string; code: string } | null> {
  try {
    await run();
    return null;
  } catch (error) {
    if (!(error instanceof RequestError)) throw error;
    return { message: error.message, code: error.code };
  }
}
