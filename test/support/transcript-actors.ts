/** Live actors in transcripts: their transitions with the effects of each, and what the world around them received meanwhile. */
import type { AnyActorRef, AnyMachineSnapshot, InspectionEvent, StateValue } from "xstate";
import type { Host } from "../../runtime/host.ts";
import { settle, type SimClock } from "../../runtime/sim/clock.ts";
import { timerName } from "./chart-run.ts";
import { changeText, durationText, eventText, fieldsText, msOf, type Command, type Script } from "./transcript.ts";

/** Far more callbacks than any command causes. */
const stepsMax = 10_000;

interface StoryOptions {
  readonly host: Host;
  readonly clock: SimClock;
  /** Only actors whose ids begin with it are shown. */
  readonly prefix: string;
  /**
   * Events that usually lead back to the state before them. They are left out with their effects, and so is a transition
   * that leads back; and timers that are cancelled, which are often those of a detour.
   */
  readonly detours?: ReadonlySet<string>;
  /** Called with every inspection of those actors. */
  readonly see?: (event: InspectionEvent) => void;
}

/** Each `start` makes a new world. */
export function worldScript(
  startWorld: () => { readonly story: ActorStory; readonly run: (command: Command) => void },
): Script {
  let world = startWorld();
  return async (command) => {
    if (command.name === "start") world = startWorld();
    else world.run(command);
    return world.story.take(command.name === "advance" ? (msOf(command.words[0] ?? "") ?? NaN) : 0);
  };
}

export class ActorStory {
  readonly #options: StoryOptions;
  readonly #startMs: number;
  readonly #states = new Map<AnyActorRef, StateValue>();
  #lines: string[] = [];
  /** Effects of the transition under way, whose state is known at its end, and notes meanwhile. */
  #effects: { readonly text: string; readonly isNote: boolean }[] = [];
  readonly #timers = new Set<string>();

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
    if (this.#effects.length > 0) this.#effects.push({ text: line, isNote: true });
    else this.#lines.push(`${this.#time()} ${line}`);
  }

  /** The lines since the last call, after everything due within `ms`. The clock fires timers slightly after their time. */
  async take(ms = 0): Promise<readonly string[]> {
    const { clock } = this.#options;
    const end = await clock.run({ untilMs: clock.now() + ms, maxSteps: stepsMax });
    if (end === "steps") throw new Error(`${stepsMax} steps within ${ms} ms: the actors loop`);
    await settle();
    await clock.run({ untilMs: clock.now(), maxSteps: stepsMax });
    return this.#lines.splice(0);
  }

  #time(): string {
    return durationText(this.#options.clock.now() - this.#startMs);
  }

  #see(event: InspectionEvent): void {
    const actor = event.actorRef as AnyActorRef & { readonly id: string };
    const { prefix, detours } = this.#options;
    if (!actor.id.startsWith(prefix)) return;
    this.#options.see?.(event);
    // A timer that has fired; its state will cancel it all the same.
    if (event.type === "@xstate.event") this.#timers.delete(`${actor.id} ${event.event.type}`);
    if (event.type === "@xstate.action") {
      const text = this.#effectText(actor.id, event.action);
      if (text !== null) this.#effects.push({ text, isNote: false });
    }
    if (event.type !== "@xstate.snapshot") return;
    const { value } = event.snapshot as AnyMachineSnapshot;
    const change = changeText(this.#states.get(actor), value);
    const isBack = detours !== undefined && change === changeText(value, value);
    if (isBack || detours?.has(timerName(event.event.type)) === true) {
      for (const { text, isNote } of this.#effects.splice(0)) if (isNote) this.note(text);
      return;
    }
    this.#states.set(actor, value);
    this.#lines.push(`${this.#time()} ${eventText(event.event)}: ${change}`);
    this.#lines.push(...this.#effects.splice(0).map(({ text }) => `  ${text}`));
  }

  /** Null for what is not shown. */
  #effectText(actorId: string, { type, params }: { readonly type: string; readonly params: unknown }): string | null {
    if (type === "xstate.raise") {
      const { id, delay } = params as { readonly id: string; readonly delay: number };
      this.#timers.add(`${actorId} ${id}`);
      return `timer ${timerName(id)} due ${durationText(this.#options.clock.now() - this.#startMs + delay)}`;
    }
    if (type === "xstate.cancel") {
      const { sendId } = params as { readonly sendId: string };
      const isArmed = this.#timers.delete(`${actorId} ${sendId}`);
      return isArmed && this.#options.detours === undefined ? `timer ${timerName(sendId)} cancelled` : null;
    }
    return type.startsWith("xstate.") ? null : `${type}${fieldsText(params ?? {})}`;
  }
}
