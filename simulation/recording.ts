/**
 * The recording of a run, for `muster replay`: what each process of a cluster keeps of its last minutes, here of all its lives,
 * and from the beginning of the run unless it is too long for that (`recordedBytesMax`).
 *
 * SR1: recording changes nothing: each step is encoded as it happens, without timers.
 */
import { createProcessFeed } from "../actors/inspection/process-feed.ts";
import { version } from "../lib/version.ts";
import { RecordedLine, RecordingHead, RecordingPart } from "../proto/gen/messages.ts";
import type { Host } from "../runtime/host.ts";
import { formatVersion, recordingFile } from "../runtime/recording/format.ts";
import { Seal } from "../runtime/recording/seal.ts";
import type { RecordedLife } from "../runtime/sim/recorded-lives.ts";
import type { Simulation } from "../runtime/sim/simulation.ts";
import { followHosts } from "./transitions.ts";

export class SimRecording {
  readonly #simulation: Simulation;
  /** Those that have actors. */
  readonly #followed = new WeakSet<RecordedLife>();

  /** `simulation`: created with `ringsBytesMax`, and no process has started. */
  constructor(simulation: Simulation) {
    this.#simulation = simulation;
    followHosts(simulation.trace, (host, who) => this.#follow(host, who));
  }

  /** Milliseconds since the start of the simulation from which on it is complete; 0: from the start. */
  get fromMs(): number {
    const { clock, lives } = this.#simulation;
    return Math.max(0, (lives?.droppedUntilMs ?? 0) - (clock.now() - clock.monotonic()));
  }

  /** The file. `failure`: the violation, which becomes the last log line, of process `world`. */
  async file(failure: string | null, failedAtMs: number): Promise<Buffer> {
    const chunks: Uint8Array[] = [];
    for await (const chunk of recordingFile(this.#parts(failure, failedAtMs))) chunks.push(chunk);
    return Buffer.concat(chunks);
  }

  async *#parts(failure: string | null, failedAtMs: number): AsyncGenerator<Uint8Array> {
    const seal = new Seal();
    const sealed = (part: Uint8Array): Uint8Array => {
      seal.add(part);
      return part;
    };
    const lives = (this.#simulation.lives?.all ?? []).filter((life) => this.#followed.has(life));
    const head = RecordingHead.create({
      format: formatVersion,
      version,
      clusterId: "simulation",
      fromMs: this.#simulation.clock.now() - this.#simulation.clock.monotonic() + this.fromMs,
      toMs: this.#simulation.clock.now(),
      processes: [...new Set(lives.map(processOf))],
    });
    yield sealed(RecordingPart.encode(RecordingPart.create({ head })));
    for (const { ring } of lives) for (const part of ring.parts(0)) yield sealed(part);
    if (failure !== null) {
      const line = RecordedLine.create({ process: "world", atMs: failedAtMs, level: "error", text: failure });
      yield sealed(RecordingPart.encode(RecordingPart.create({ line })));
    }
    yield RecordingPart.encode(RecordingPart.create({ end: seal.end([], null) }));
  }

  #follow(host: Host, who: string): void {
    const life = this.#simulation.lives?.all.findLast(({ name }) => name === who);
    if (life === undefined) throw new Error(`nothing of ${who} is kept`);
    this.#followed.add(life);
    const { clock, log, ring } = life;
    // SR1
    createProcessFeed({ host, clock, telemetry: { log }, process: processOf(life), hostname: who }).record(ring);
  }
}

/** As processes of real clusters are named, with the name in place of the node's id. */
const processOf = ({ isManager, name }: RecordedLife): string => `${isManager ? "manager" : "node"}-${name}`;
