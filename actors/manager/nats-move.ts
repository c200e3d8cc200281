/**
 * Hosts `machines/manager/nats-move.machine.ts`: moves the log from this manager's own nats-server to a cluster of three. The
 * process supplies the servers and the disk.
 */
import { natsMoveMachine, type NatsMoveEvent, type NatsMoveStage } from "../../machines/manager/nats-move.machine.ts";
import type { Store } from "../../runtime/store/store.ts";
import type { Environment, Running } from "../environment.ts";
import { sentence } from "../sentence.ts";

export interface NatsMovePorts {
  /** Starts servers on this manager and on two of those at the addresses. Rejects when they form no cluster. */
  gather(addresses: readonly string[]): Promise<void>;
  /** Rejects when the copy is not complete. */
  copy(): Promise<void>;
  /** Rejects when the outcome is not known. */
  commit(): Promise<void>;
  /** Rejects when the servers do not answer. */
  isCommitted(): Promise<boolean>;
  /** Durable on return: a start continues from there. */
  save(stage: NatsMoveStage | "moved"): void;
  /** Ends this life of the manager; the next one continues from what is saved. */
  restart(): void;
}

interface NatsMove extends Running {
  /** Resolves with whether the log has been moved; a move that was given up can be tried again. */
  readonly ended: Promise<"moved" | "given up">;
}

/** `store`: shows the other managers, before a move; null for one that continues. */
export function startNatsMove(
  { host, managerId, telemetry }: Pick<Environment, "host" | "managerId" | "telemetry">,
  ports: NatsMovePorts,
  { stage, store }: { readonly stage: NatsMoveStage; readonly store: Store | null },
): NatsMove {
  let isStopped = false;
  const end = Promise.withResolvers<"moved" | "given up">();
  const send = (event: NatsMoveEvent): void => {
    if (!isStopped) hosted.send(event);
  };
  /** Each address is one manager: one that joins with another's address is about to be refused. */
  const others = (): readonly string[] => {
    const own = store?.get("manager", managerId)?.addr;
    const alive = [...(store?.all("manager") ?? [])].filter((manager) => manager.alive && manager.id !== managerId);
    return [...new Set(alive.map(({ addr }) => addr))].filter((addr) => addr !== own);
  };
  const count = (): void => send({ type: "others.counted", others: others().length });
  const answer = async (work: Promise<NatsMoveEvent>, failed: (reason: string) => NatsMoveEvent): Promise<void> =>
    send(await work.catch((error: unknown) => failed(sentence(error))));

  const hosted = host.start(
    natsMoveMachine,
    "nats-move",
    { stage },
    {
      effects: {
        gather: () => {
          const gathered = ports.gather(others()).then((): NatsMoveEvent => ({ type: "cluster.gathered" }));
          void answer(gathered, (reason) => {
            telemetry.log.warn({ reason }, "cannot form a cluster of three nats-servers yet: the log keeps one copy");
            return { type: "gathering.failed" };
          });
        },
        stopServing: () => {
          telemetry.log.info({}, "moving the log to a cluster of three nats-servers: writes wait");
          ports.save("moving");
          ports.restart();
        },
        copy: () => {
          const copied = ports.copy().then((): NatsMoveEvent => ({ type: "copy.completed" }));
          void answer(copied, (reason) => ({ type: "copy.failed", reason }));
        },
        commit: () => {
          ports.save("committing");
          const committed = ports.commit().then((): NatsMoveEvent => ({ type: "commit.confirmed" }));
          void answer(committed, (reason) => {
            telemetry.log.warn({ reason }, "the outcome of the move of the log is unknown: asking the nats-servers");
            return { type: "commit.unknown" };
          });
        },
        readTarget: () => {
          ports.isCommitted().then(
            (is) => send({ type: "target.read", found: is ? "committed" : "not committed" }),
            (error: unknown) =>
              telemetry.log.warn(
                { reason: sentence(error) },
                "the log may be in the cluster of nats-servers, which does not answer yet",
              ),
          );
        },
        giveUp: ({ reason }) => {
          telemetry.log.warn({ reason }, "the log could not be moved: its old nats-server continues");
          ports.save("none");
          end.resolve("given up");
        },
        finish: () => {
          ports.save("moved");
          telemetry.log.info({}, "the log is in a cluster of three nats-servers");
          end.resolve("moved");
        },
      },
    },
  );
  const watching = store?.watch(({ changes }) => {
    if (changes.some(({ table }) => table === "manager")) count();
  });
  if (store !== null) count();
  return {
    ended: end.promise,
    stop: () => {
      isStopped = true;
      watching?.unsubscribe();
      hosted.stop();
    },
  };
}
