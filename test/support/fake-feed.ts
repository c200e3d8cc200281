/** A process's feed whose actors a test moves by hand. */
import type { FeedHandle, FeedListener, ProcessFeed } from "../../actors/inspection/process-feed.ts";
import { ActorFeed, ActorSnapshot, ActorState, ActorStep, type ActorSelection } from "../../proto/gen/messages.ts";

export class FakeFeed implements ProcessFeed {
  readonly process: string;
  readonly states = new Map<string, string>();
  readonly #lines = new Set<Line>();

  constructor(process: string) {
    this.process = process;
  }

  get listeners(): number {
    return this.#lines.size;
  }

  /** Steps that were left out because listeners were not ready. */
  get dropped(): number {
    return [...this.#lines].reduce((sum, { dropped }) => sum + dropped, 0);
  }

  listen(selection: ActorSelection, listener: FeedListener): FeedHandle {
    const line: Line = { listener, selection, sequence: 0, dropped: 0, needsSnapshot: true };
    this.#lines.add(line);
    queueMicrotask(() => this.#snapshot(line));
    return { again: () => this.#again(line), close: () => this.#lines.delete(line) };
  }

  move(actor: string, state: string, context = ""): void {
    this.states.set(actor, state);
    for (const line of this.#lines)
      if (line.needsSnapshot) this.#snapshot(line);
      else if (line.listener.ready())
        this.#send(line, { steps: [ActorStep.create({ actor, states: [state], context })] });
      else line.dropped += 1;
  }

  stop(): void {
    this.#lines.clear();
  }

  #again(line: Line): void {
    line.needsSnapshot = true;
    this.#snapshot(line);
  }

  /** As the real one, it waits for a listener that is not ready: here, until the next move. */
  #snapshot(line: Line): void {
    if (!this.#lines.has(line) || !line.needsSnapshot || !line.listener.ready()) return;
    line.needsSnapshot = false;
    const actors = [...this.states].map(([actor, state]) => ActorState.create({ actor, states: [state] }));
    this.#send(line, { snapshot: ActorSnapshot.create({ begins: true, ends: true, actors }) });
  }

  #send(line: Line, fields: Partial<ActorFeed>): void {
    line.sequence += 1;
    line.listener.onFeed(ActorFeed.create({ process: this.process, sequence: line.sequence, ...fields }));
  }
}

interface Line {
  readonly listener: FeedListener;
  readonly selection: ActorSelection;
  sequence: number;
  dropped: number;
  needsSnapshot: boolean;
}
