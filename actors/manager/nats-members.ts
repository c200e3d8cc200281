/**
 * Hosts `machines/manager/nats-members.machine.ts`: keeps the cluster of three managers' nats-servers whole. The process supplies
 * the servers and the list of them.
 */
import { missingCopies, natsMembersStep, type NatsMembersFacts } from "../../machines/manager/nats-members.ts";
import { natsMembersMachine, type NatsMembersEvent } from "../../machines/manager/nats-members.machine.ts";
import { isDemoted } from "../../machines/manager/role.ts";
import { Trouble_Kind } from "../../proto/gen/messages.ts";
import type { Troubles } from "../../runtime/ports/troubles.ts";
import type { Store } from "../../runtime/store/store.ts";
import type { Environment, Running } from "../environment.ts";
import { sentence } from "../sentence.ts";

export interface NatsMembersPorts {
  /** Rejects while the servers have no leader. */
  read(): Promise<Pick<NatsMembersFacts, "servers" | "copies" | "known">>;
  /** May be repeated. Rejects if that manager's server does not start. */
  add(manager: { readonly id: string; readonly addr: string }): Promise<void>;
  remove(server: string): Promise<void>;
  /** Asks the managers at the addresses for a newer list, and takes it. */
  learn(addresses: readonly string[]): Promise<void>;
}

export function startNatsMembers(
  { host, managerId, telemetry }: Pick<Environment, "host" | "managerId" | "telemetry">,
  ports: NatsMembersPorts,
  { store, troubles }: { readonly store: Store; readonly troubles: Troubles },
): Running {
  let isStopped = false;
  const send = (event: NatsMembersEvent): void => {
    if (!isStopped) hosted.send(event);
  };
  /** A manager that is being demoted is on its way out, whatever its record says. */
  const managers = (): readonly { id: string; alive: boolean; addr: string }[] =>
    [...store.all("manager")].filter(({ id }) => {
      const node = store.get("node", id);
      return node !== undefined && !isDemoted(node);
    });
  const take = async (work: Promise<void>, fields: Readonly<Record<string, string>>, what: string): Promise<void> => {
    try {
      await work;
      telemetry.log.info(fields, what);
      send({ type: "step.taken" });
    } catch (error) {
      telemetry.log.warn({ ...fields, reason: sentence(error) }, `not yet: ${what}`);
      send({ type: "step.failed" });
    }
  };

  const hosted = host.start(natsMembersMachine, "nats-members", undefined, {
    effects: {
      readServers: () => {
        ports.read().then(
          (found) => {
            const facts = { ...found, ownId: managerId, managers: managers() };
            send({ type: "servers.read", step: natsMembersStep(facts), missing: missingCopies(facts) ?? "" });
          },
          (error: unknown) => {
            telemetry.log.debug({ reason: sentence(error) }, "cannot read which servers NATS has");
            send({ type: "reading.failed" });
          },
        );
      },
      add: ({ step }) => {
        const id = step.kind === "add" ? step.managerId : "";
        const addr = managers().find((manager) => manager.id === id)?.addr ?? "";
        void take(ports.add({ id, addr }), { manager: id }, "the nats-server of another manager joins the cluster");
      },
      remove: ({ step }) => {
        const server = step.kind === "remove" ? step.server : "";
        void take(ports.remove(server), { server }, "removed a nats-server from the cluster");
      },
      learn: () => {
        const others = managers().filter(({ alive, id }) => alive && id !== managerId);
        void take(ports.learn(others.map(({ addr }) => addr)), {}, "compared the list of nats-servers with others'");
      },
      reportMissing: ({ sentence: said }) => {
        if (said === "") troubles.clear(Trouble_Kind.COPIES_MISSING);
        else troubles.raise({ kind: Trouble_Kind.COPIES_MISSING, sentence: said, blocking: false });
      },
    },
  });
  const watching = store.watch(({ changes }) => {
    if (changes.some(({ table }) => table === "manager")) send({ type: "managers.changed" });
  });
  return {
    stop: () => {
      isStopped = true;
      watching.unsubscribe();
      hosted.stop();
    },
  };
}
