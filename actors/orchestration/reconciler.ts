/** Hosts a chart with a reconcile loop (`machines/reconcile.ts`). */
import type { AnyStateMachine, ContextFrom, EventFromLogic, InputFrom, SnapshotFrom } from "xstate";
import type { ReconcileEvent, Verdict } from "../../machines/reconcile.ts";
import type { EffectsOf, HostedActor, Owner } from "../../runtime/host.ts";
import { Causes, inCause } from "../../runtime/observation/cause.ts";
import type { Environment, Running } from "../environment.ts";

export interface Round<Of extends Verdict> {
  readonly verdict: Of;
  /** Writes the decision; its end must be sent to the loop. Absent: there is nothing to wait for. */
  readonly write?: () => void;
}

type VerdictOf<Machine extends AnyStateMachine> =
  ContextFrom<Machine> extends { readonly verdict: infer Of extends Verdict } ? Of : never;

/** The effects that a chart has besides those of the loop. */
export type OwnEffects<Machine extends AnyStateMachine> = Omit<EffectsOf<Machine>, "gather" | "decide">;

/** `Of` as the value of `effects`, which may be absent when the chart has none. */
export type WithEffects<Own, Of = Own> = object extends Own ? { readonly effects?: Of } : { readonly effects: Of };

type Options<Machine extends AnyStateMachine> = WithEffects<OwnEffects<Machine>> & {
  /** Its chart extends `reconciling`. */
  readonly machine: Machine;
  readonly id: string;
  readonly input: InputFrom<Machine>;
  /** One round. */
  decide(): RoundOf<Machine>;
};

export type RoundOf<Machine extends AnyStateMachine> = Round<VerdictOf<Machine>>;

export class Reconciler<Machine extends AnyStateMachine> implements Running {
  readonly #hosted: HostedActor<Machine>;
  /** Causes of the next round. */
  readonly #causes = new Causes();
  #hasNews = false;
  #isStopped = false;

  constructor(env: Environment, { machine, decide, effects, id, input }: Options<Machine>) {
    const loop = {
      gather: () => {
        this.#causes.note();
        const later = env.host.later(() => inCause(this.#causes.take(), () => this.#send({ type: "round.due" })));
        env.clock.soon(later);
      },
      decide: () => {
        const { verdict, write } = decide();
        if (this.#isStopped) return;
        this.#send({ type: write === undefined ? "round.done" : "decision.made", verdict });
        write?.();
      },
    };
    this.#hosted = env.host.start(machine, id, input, {
      effects: { ...(effects as object), ...loop },
    } as unknown as Owner<Machine>);
  }

  get snapshot(): SnapshotFrom<Machine> {
    return this.#hosted.snapshot;
  }

  /** Nothing is sent after `stop`. */
  send(event: EventFromLogic<Machine>): void {
    if (!this.#isStopped) this.#hosted.send(event);
  }

  #send(event: ReconcileEvent): void {
    this.send(event as unknown as EventFromLogic<Machine>);
  }

  wake(): void {
    this.#causes.note();
    this.#wake();
  }

  /** The present cause is one of the next round. */
  noteCause(): void {
    this.#causes.note();
  }

  /** Wakes it at the end of the commit. */
  note(): void {
    this.#hasNews = true;
    this.#causes.note();
  }

  commitEnded(): void {
    if (!this.#hasNews) return;
    this.#hasNews = false;
    this.#wake();
  }

  #wake(): void {
    inCause(this.#causes.peek(), () => this.#send({ type: "work.arrived" }));
  }

  stop(): void {
    this.#isStopped = true;
    this.#hosted.stop();
  }
}
