/**
 * The parts that many steps have in common: event, states, transitions, guards and effects. A chart has a few dozen of these, so a million
 * steps share a few thousand.
 */
import { movedFields } from "../../proto/feed-state.ts";

/** Memory of the shapes, some 30,000 of 200 bytes each: those of all charts. Further ones are kept with their steps. */
const shapesBytesMax = 16 * 1024 * 1024;

const none = new Uint8Array();
const fromLatin1 = (text: string): Uint8Array => Buffer.from(text, "latin1");

export class Shapes {
  readonly #numbers = new Map<string, number>();
  readonly #bytes: Uint8Array[] = [];
  readonly #ofStates: Uint8Array[] = [];
  #memoryBytes = 0;

  get memoryBytes(): number {
    return this.#memoryBytes;
  }

  /** The number of a shape (`StepScan.shape`); null if it is to be kept with its step. */
  numberOf(shape: string): number | null {
    const known = this.#numbers.get(shape);
    if (known !== undefined) return known;
    if (this.#memoryBytes >= shapesBytesMax) return null;
    const number = this.#bytes.length;
    this.#numbers.set(shape, number);
    const bytes = fromLatin1(shape);
    const ofState = movedFields(bytes);
    this.#bytes.push(bytes);
    this.#ofStates.push(ofState);
    this.#memoryBytes += shape.length * 2 + ofState.length + 150;
    return number;
  }

  bytesOf(number: number): Uint8Array | undefined {
    return this.#bytes[number];
  }

  /** The fields that an actor's state has from a step of this shape; empty if the step keeps its shape itself. */
  ofState(number: number): Uint8Array {
    return this.#ofStates[number] ?? none;
  }
}

/** The shape of a step that keeps it itself. */
export const ownShape = 0xffff_ffff;
