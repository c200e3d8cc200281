/**
 * The part behind the JSON API's edge: the charts of its connections, and logins (`logins.ts`, JA1).
 *
 * JA2: removing or disabling a login notifies every connection that uses it.
 * JA3: a login by certificate ends with the certificate (`edges/juju/connection.ts`, C3).
 */
import { jsonConnectionMachine, type JsonConnectionEvent } from "../../machines/json/connection.machine.ts";
import type { Identity, JsonApi, LoginName } from "../../runtime/ports/json-api.ts";
import type { Environment, Running } from "../environment.ts";
import type { Logins } from "./logins.ts";
import { identityOf, recordId, standingOfLogin } from "./user-records.ts";

export function startJsonApi(env: Environment, logins: Logins): JsonApi & Running {
  const { host, store } = env;
  const listeners = new Map<string, Set<{ readonly identity: Identity; readonly listener: () => void }>>();

  const watching = store.watch(({ changes }) => {
    if (listeners.size === 0) return;
    for (const { action, table, object } of changes) {
      if (table !== "user" && table !== "node" && table !== "task") continue;
      if (action !== "remove" && !(table === "user" && object.disabled)) continue;
      const id = table === "user" ? object.id : `${table}-${object.id}`;
      // The agent's record, or its node or task.
      for (const each of Array.from(listeners.get(id) ?? [])) each.listener();
    }
  });

  return {
    startConnection(id, effects) {
      const actor = host.start(jsonConnectionMachine, `json-connection/${id}`, undefined, {
        effects: {
          checkLogin: ({ key }) => effects.checkLogin(key),
          welcome: ({ key }) => effects.welcome(key),
          refuseLogin: ({ key, reason }) => effects.refuseLogin(key, reason),
          refuseRequest: ({ key }) => effects.refuseRequest(key),
          ping: () => effects.ping(),
          release: () => effects.release(),
          sayGoodbye: ({ code, reason }) => effects.sayGoodbye(code, reason),
          cutOff: () => effects.cutOff(),
        },
      });
      const send = (event: JsonConnectionEvent): void => {
        actor.send(event);
        if (actor.snapshot.status !== "active") actor.stop();
      };
      return {
        opened: () => send({ type: "socket.opened" }),
        closed: () => send({ type: "socket.closed" }),
        loginAsked: (key) => send({ type: "login.requested", key }),
        loginAccepted: (key, tag) => send({ type: "login.accepted", key, tag }),
        loginRefused: (key) => send({ type: "login.refused", key }),
        requestAsked: (key) => send({ type: "request.received", key }),
        messageBroken: (reason) => send({ type: "message.broken", reason }),
        identityGone: () => send({ type: "identity.gone" }),
        heard: () => send({ type: "peer.responded" }),
        outputStuck: () => send({ type: "output.stuck" }),
        outputMoved: () => send({ type: "output.moved" }),
        outputEmpty: () => send({ type: "output.empty" }),
        outputOverflowed: () => send({ type: "output.overflowed" }),
        serverStopping: () => send({ type: "server.stopping" }),
      };
    },

    checkLogin: (attempt) => logins.check(attempt),

    register: logins.register,

    identityNow: (identity) => identityOf(store, identity),

    standing: (name) => standingOfLogin(store, name),

    onGone(identity, listener) {
      const id = recordId(identity satisfies LoginName);
      const entry = { identity, listener };
      const known = listeners.get(id) ?? new Set();
      listeners.set(id, known.add(entry));
      return {
        unsubscribe: () => {
          known.delete(entry);
          if (known.size === 0 && listeners.get(id) === known) listeners.delete(id);
        },
      };
    },

    stop: () => watching.unsubscribe(),
  };
}
