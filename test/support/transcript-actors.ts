/** Live actors in transcripts: their transitions with the effects of each, and what the world around them received meanwhile. */
import type { AnyActorRef, AnyMachineSnapshot, InspectionEvent, StateValue } from "xstate";
import type { Host } from "../../runtime/host.ts";
import { settle, type SimClock } from "../../runtime/sim/clock.ts";
import { changeText, durationText, eventText, fieldsText, timerName } from "./transcript.ts";

export interface StoryOptions {
  readonly host: Host;
  readonly clock: SimClock;
  /** Only actors whose ids begin with it are shown. */
  readonly prefix: string;
  /**
   * Events that usually lead back to the state before them. They are left out with their effects, and so is a transition
   * that leads back.
   */
  readonly detours?: ReadonlySet<string>;
}

export class ActorStory {
  readonly #options: StoryOptions;
  readonly #startMs: number;
  readonly #states = new Map<AnyActorRef, StateValue>();
  #lines: string[] = [];
  /** Effects of the transition under way, whose state is known at its end. */
  #effects: string[] = [];

  /** Begins with the next transition; the host must have an actor already. */
  constructor(options: StoryOptions) {
    this.#options = options;
    this.#startMs = options.clock.now();
    this.follow();
  }

  /** To be called again after all actors have been replaced. */
  follow(): void {
    const { host } = this.#options;
    const actors = [...host.ids()].map((id) => host.find(id)).filter((actor) => actor !== undefined);
    for (const actor of actors) this.#states.set(actor, actor.getSnapshot().value as StateValue);
    const [first] = actors;
    if (first === undefined) throw new Error("the host has no actor yet, and so no system to inspect");
    first.system.inspect((event: InspectionEvent) => this.#see(event));
  }

  /** A message or an effect on the world, as part of the transition that caused it. */
  note(line: string): void {
    if (this.#effects.length > 0) this.#effects.push(line);
    else this.#lines.push(`${this.#time()} ${line}`);
  }

  /** The lines since the last call, after everything due within `ms`. The clock fires timers slightly after their time. */
  async take(ms = 0): Promise<readonly string[]> {
    await this.#options.clock.run({ untilMs: this.#options.clock.now() + ms });
    await settle();
    await this.#options.clock.run({ untilMs: this.#options.clock.now() });
    return this.#lines.splice(0);
  }

  #time(): string {
    return durationText(this.#options.clock.now() - this.#startMs);
  }

  #see(event: InspectionEvent): void {
    const actor = event.actorRef as AnyActorRef & { readonly id: string };
    const { prefix, detours } = this.#options;
    if (!actor.id.startsWith(prefix)) return;
    if (event.type === "@xstate.action") {
      const line = this.#effectText(event.action);
      if (line !== null) this.#effects.push(line);
    }
    if (event.type !== "@xstate.snapshot") return;
    const { value } = event.snapshot as AnyMachineSnapshot;
    const change = changeText(this.#states.get(actor), value);
    const isBack = detours !== undefined && change === changeText(value, value);
    if (isBack || detours?.has(timerName(event.event.type)) === true) {
      this.#effects = [];
      return;
    }
    this.#states.set(actor, value);
    this.#lines.push(`${this.#time()} ${eventText(event.event)}: ${change}`);
    this.#lines.push(...this.#effects.splice(0).map((line) => `  ${line}`));
  }

  /** Null for the chart's notes to itself, and for timers that are cancelled, since those of a state end with it. */
  #effectText({ type, params }: { readonly type: string; readonly params: unknown }): string | null {
    if (type === "xstate.raise") {
      const { id, delay } = params as { readonly id: string; readonly delay: number };
      return `timer ${timerName(id)} due ${durationText(this.#options.clock.now() - this.#startMs + delay)}`;
    }
    return type.startsWith("xstate.") ? null : `${type}${fieldsText(params ?? {})}`;
  }
}
