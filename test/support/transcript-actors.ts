/** Live actors in transcripts: their transitions with the effects of each, and what the world around them received meanwhile. */
import type { AnyActorRef, AnyMachineSnapshot, InspectionEvent, StateValue } from "xstate";
import type { Host } from "../../runtime/host.ts";
import { settle, type SimClock } from "../../runtime/sim/clock.ts";
import { changeText, durationText, eventText, fieldsText, timerName } from "./transcript.ts";

export class ActorStory {
  readonly #clock: SimClock;
  readonly #startMs: number;
  readonly #isShown: (actorId: string) => boolean;
  readonly #states = new Map<AnyActorRef, StateValue>();
  #lines: string[] = [];
  /** Effects of the transition under way, whose state is known at its end. */
  #effects: string[] = [];

  /** Begins with the next transition. `isShown` chooses actors by id; `host` must have one already. */
  constructor(host: Host, clock: SimClock, isShown: (actorId: string) => boolean) {
    this.#clock = clock;
    this.#startMs = clock.now();
    this.#isShown = isShown;
    for (const id of host.ids()) {
      const actor = host.find(id);
      const value: StateValue | undefined = actor?.getSnapshot().value;
      if (actor !== undefined && value !== undefined) this.#states.set(actor, value);
    }
    const [first] = host.ids();
    if (first === undefined) throw new Error("the host has no actor yet, and so no system to inspect");
    host.find(first)?.system.inspect((event: InspectionEvent) => this.#see(event));
  }

  /** A message or an effect on the world, as part of the transition that caused it. */
  note(line: string): void {
    if (this.#effects.length > 0) this.#effects.push(line);
    else this.#lines.push(`${this.#time()} ${line}`);
  }

  /** The lines since the last call, after everything due within `ms`. The clock fires timers slightly after their time. */
  async take(ms = 0): Promise<readonly string[]> {
    await this.#clock.run({ untilMs: this.#clock.now() + ms });
    await settle();
    await this.#clock.run({ untilMs: this.#clock.now() });
    return this.#lines.splice(0);
  }

  #time(): string {
    return durationText(this.#clock.now() - this.#startMs);
  }

  #see(event: InspectionEvent): void {
    const actor = event.actorRef as AnyActorRef & { readonly id: string };
    if (!this.#isShown(actor.id)) return;
    if (event.type === "@xstate.action") {
      const line = this.#effectText(event.action);
      if (line !== null) this.#effects.push(line);
    }
    if (event.type !== "@xstate.snapshot") return;
    const { value } = event.snapshot as AnyMachineSnapshot;
    const change = changeText(this.#states.get(actor), value);
    this.#states.set(actor, value);
    this.#lines.push(`${this.#time()} ${eventText(event.event)}: ${change}`);
    this.#lines.push(...this.#effects.splice(0).map((line) => `  ${line}`));
  }

  /** Null for the chart's notes to itself, and for timers that are cancelled, since those of a state end with it. */
  #effectText({ type, params }: { readonly type: string; readonly params: unknown }): string | null {
    if (type === "xstate.raise") {
      const { id, delay } = params as { readonly id: string; readonly delay: number };
      return `timer ${timerName(id)} due ${durationText(this.#clock.now() - this.#startMs + delay)}`;
    }
    return type.startsWith("xstate.") ? null : `${type}${fieldsText(params ?? {})}`;
  }
}
