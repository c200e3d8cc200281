/**
 * The leader's part in replacing the CA of the managers' own NATS: hosts the chart, which every change of managers, nodes and the
 * cluster moves. The process supplies the list of CAs, and the calls that hand it to other managers.
 */
import { isSameMessage } from "../../machines/same-message.ts";
import { isDemoted } from "../../machines/manager/role.ts";
import {
  natsAuthorityMachine,
  natsAuthorityStep,
  type NatsAuthorityEvent,
  type NatsAuthorityStep,
} from "../../machines/keys/nats-authority.machine.ts";
import { NatsAuthorities, type Manager, type NatsAuthority } from "../../proto/gen/messages.ts";
import type { Environment, Running } from "../environment.ts";
import { sentence } from "../sentence.ts";

export interface NatsAuthorityPorts {
  /** The list that this manager uses. */
  readonly list: () => NatsAuthorities;
  /**
   * Saves and uses a list, if it is newer; resolves once certificate and nats-server follow it. Rejects with the disk's errors.
   */
  readonly use: (list: NatsAuthorities) => Promise<void>;
  readonly make: () => Promise<NatsAuthority>;
  /** Has the manager at an address use a list, and returns the one that it uses then. Rejects with RpcError. */
  readonly tell: (address: string, list: NatsAuthorities) => Promise<NatsAuthorities>;
}

/** Whether the second list is newer than the first. Of two leaders' lists with one revision, all managers choose the same. */
export function isNewerList(known: NatsAuthorities, list: NatsAuthorities): boolean {
  if (list.revision !== known.revision) return list.revision > known.revision;
  return Buffer.compare(NatsAuthorities.encode(list), NatsAuthorities.encode(known)) > 0;
}

/** To be started on the leader only. `isCopyMissing`: whether the log lacks one of its three copies. */
export function startNatsAuthority(env: Environment, ports: NatsAuthorityPorts, isCopyMissing: () => boolean): Running {
  const { clock, managerId, store, telemetry } = env;
  let isStopped = false;
  /** Since when the last step is held; null: it is not. */
  let heldSince: number | null = null;
  /** The lists that other managers use, by their ids, as far as they have answered this leader. */
  const used = new Map<string, NatsAuthorities>();

  /** A manager that is being demoted gets no key any more. */
  const others = (): readonly Manager[] =>
    [...store.all("manager")].filter(({ id }) => {
      const node = store.get("node", id);
      return id !== managerId && node !== undefined && !isDemoted(node);
    });
  const wantedForced = (): number => [...store.all("cluster")][0]?.spec?.caConfig?.forceRotate ?? 0;

  const next = (): NatsAuthorityStep => {
    const list = ports.list();
    const { authorities, forced, holders, issuer, revision } = list;
    const uses = (id: string): boolean => {
      const found = used.get(id);
      return found !== undefined && isSameMessage(found, list);
    };
    const step = natsAuthorityStep({
      isCopyMissing: isCopyMissing(),
      heldMs: heldSince === null ? 0 : clock.monotonic() - heldSince,
      revision,
      trusted: authorities.map(({ id }) => id),
      issuer,
      holders,
      forced,
      wantedForced: wantedForced(),
      nodes: [...store.all("node")].map(({ id }) => id),
      managers: [
        { id: managerId, alive: true, usesRevision: true },
        ...others().map(({ alive, id }) => ({ id, alive, usesRevision: uses(id) })),
      ],
    });
    if (step.kind === "hold") heldSince ??= clock.monotonic();
    if (step.kind === "rest") heldSince = null;
    return step;
  };

  /** Resolves with why a live manager did not take the list; empty: all have it. */
  const spread = async (): Promise<string> => {
    // Those that are away last: each of them takes a timeout.
    const asked = others().toSorted((a, b) => Number(b.alive) - Number(a.alive));
    let reason = "";
    for (const { addr, alive, id } of asked) {
      if (isStopped) return "";
      const list = ports.list();
      const found = used.get(id);
      if (found !== undefined && isSameMessage(found, list)) continue;
      try {
        const answer = await ports.tell(addr, list);
        used.set(id, answer);
        // C3
        if (isNewerList(list, answer)) await ports.use(answer);
      } catch (error) {
        used.delete(id);
        if (alive) reason ||= `${addr}: ${sentence(error)}`;
      }
    }
    return reason;
  };

  const change = async ({ kind }: NatsAuthorityStep): Promise<void> => {
    const list = ports.list();
    const { authorities, revision } = list;
    const newest = authorities.at(-1);
    if (newest === undefined) throw new Error("there is no CA of NATS");
    const managers = [managerId, ...others().map(({ id }) => id)];
    const patch = (fields: Partial<NatsAuthorities>): Promise<void> =>
      ports.use(NatsAuthorities.patch(list, { ...fields, revision: revision + 1 }));
    switch (kind) {
      case "record": {
        const holders = [...new Set([...list.holders, ...managers])];
        return patch({ holders, ...(revision === 0 ? { forced: wantedForced() } : {}) });
      }
      case "make": {
        const forced = wantedForced();
        const made = await ports.make();
        telemetry.log.info(
          { authority: made.id },
          "created a new CA for NATS; every manager is going to trust it first",
        );
        return patch({ authorities: [newest, made], holders: managers, forced });
      }
      case "issue":
        return patch({ issuer: newest.id });
      case "narrow":
        await patch({ authorities: [newest] });
        telemetry.log.info({ authority: newest.id }, "certificates of the former CA of NATS are not trusted any more");
        return;
      case "rest":
      case "spread":
      case "hold":
        return;
    }
  };

  const send = (event: NatsAuthorityEvent): void => {
    if (!isStopped) hosted.send(event);
  };
  let logged = "";
  const failed = (error: unknown, what: string): void => {
    const reason = typeof error === "string" ? error : sentence(error);
    // Once for each reason: it may stay while managers are upgraded.
    if (reason !== logged) telemetry.log.warn({ reason }, what);
    logged = reason;
    send({ type: "step.failed", reason });
  };
  const hosted = env.host.start(natsAuthorityMachine, "nats-authority", undefined, {
    effects: {
      // Deferred out of the chart's step: the answer must find it in the state that asked.
      spread: () =>
        env.clock.soon(() => {
          spread().then(
            (reason) => {
              if (reason === "") send({ type: "list.spread", step: next() });
              else failed(reason, "a manager does not use the list of NATS's CAs yet");
            },
            (error: unknown) => failed(error, "cannot use another manager's list of NATS's CAs"),
          );
        }),
      change: ({ step }) =>
        env.clock.soon(() => {
          change(step).then(
            () => send({ type: "step.taken", step: next() }),
            (error: unknown) => failed(error, "cannot change the list of NATS's CAs"),
          );
        }),
    },
  });
  const watching = store.watch(({ changes }) => {
    for (const { object, table } of changes)
      // It may have another list when it returns.
      if (table === "manager" && !object.alive) used.delete(object.id);
    const concerns = changes.some(
      (change) =>
        change.table === "manager" ||
        change.table === "cluster" ||
        (change.table === "node" && change.action !== "update"),
    );
    if (concerns) send({ type: "facts.changed", step: next() });
  });
  return {
    stop: () => {
      isStopped = true;
      watching.unsubscribe();
      hosted.stop();
    },
  };
}
