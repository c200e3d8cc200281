/**
 * The outcomes of all writes: the truth that the cluster is compared with.
 *
 * Each name is written by one client, one write after the other. An acknowledged write leaves one allowed content; a write with
 * an unknown outcome adds its content to the allowed ones; a rejected write changes nothing.
 */

/** The content of a name: its value, or null if it does not exist. */
export type Content = string | null;

interface Name {
  readonly allowed: Set<Content>;
  /** Its last writes, for a failure report. */
  readonly history: string[];
}

const historyMax = 8;

export class WriteRecord {
  readonly #names = new Map<string, Name>();
  readonly #removed = new Map<string, readonly string[]>();
  /** Counts of outcomes. */
  readonly counts = { acknowledged: 0, refused: 0, unknown: 0 };

  acknowledged(name: string, content: Content): void {
    this.counts.acknowledged += 1;
    const { allowed, history } = this.#note(name, content, "acknowledged");
    allowed.clear();
    allowed.add(content);
    if (content !== null) return;
    // A removed name is never reused: any later sight of it is an error.
    this.#removed.set(name, history);
    this.#names.delete(name);
  }

  refused(name: string, content: Content, why: string): void {
    this.counts.refused += 1;
    this.#note(name, content, `refused (${why})`);
  }

  unknown(name: string, content: Content, why: string): void {
    this.counts.unknown += 1;
    this.#note(name, content, `unknown (${why})`).allowed.add(content);
  }

  /** Sentences about names that are listed wrongly or missing. */
  problems(listed: ReadonlyMap<string, string>): string[] {
    const problems: string[] = [];
    for (const [name, { allowed, history }] of this.#names) {
      const content = listed.get(name) ?? null;
      if (allowed.has(content)) continue;
      const expected = [...allowed].map(shown).join(" or ");
      problems.push(`${name} is ${shown(content)} and should be ${expected} [${history.join(", ")}]`);
    }
    for (const name of listed.keys()) {
      if (this.#names.has(name)) continue;
      const history = this.#removed.get(name) ?? ["never written"];
      problems.push(`${name} exists but should be absent [${history.join(", ")}]`);
    }
    return problems;
  }

  #note(name: string, content: Content, outcome: string): Name {
    const found = this.#names.get(name) ?? { allowed: new Set<Content>([null]), history: [] };
    this.#names.set(name, found);
    found.history.push(`${new Date().toISOString().slice(14, 23)} ${shown(content)} ${outcome}`);
    if (found.history.length > historyMax) found.history.shift();
    return found;
  }
}

function shown(content: Content): string {
  return content === null ? "absent" : content;
}
