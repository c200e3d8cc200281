/** The clients of this manager that are attached to the input of a task: a terminal's size is set by a request of its own. */
import type { SendInput } from "./execs.ts";

export class Attachments {
  readonly #byContainer = new Map<string, readonly SendInput[]>();

  /** Returns what removes it again. */
  add(containerId: string, send: SendInput): () => void {
    this.#byContainer.set(containerId, [...this.#all(containerId), send]);
    return () => {
      const rest = this.#all(containerId).filter((each) => each !== send);
      if (rest.length === 0) this.#byContainer.delete(containerId);
      else this.#byContainer.set(containerId, rest);
    };
  }

  /** The newest; null if there is none. */
  of(containerId: string): SendInput | null {
    return this.#all(containerId).at(-1) ?? null;
  }

  #all(containerId: string): readonly SendInput[] {
    return this.#byContainer.get(containerId) ?? [];
  }
}
