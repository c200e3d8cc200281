/** What a node offers beside processors and memory, as dockerd's flag of the same name writes it. */
import { DiscreteGenericResource, GenericResource, NamedGenericResource } from "../../proto/gen/messages.ts";
import { UsageError } from "../command.ts";

const flag = "--node-generic-resource";

/**
 * `ssd=3` is three of a kind that are all alike, `gpu=UUID1` one unit by its name; several stand in several flags or behind
 * commas. Throws UsageError, also for a kind that is both counted and named.
 */
export function offeredResources(texts: readonly string[]): readonly GenericResource[] {
  const counted = new Map<string, number>();
  const named = new Map<string, Set<string>>();
  for (const text of texts.flatMap((each) => each.split(","))) {
    const [, kind = "", value = ""] = /^([^=\s]+)=([^=\s]+)$/.exec(text) ?? [];
    if (kind === "")
      throw new UsageError(`invalid argument "${text}" for "${flag}" flag: expected KIND=COUNT or KIND=NAME`);
    const isCount = /^[+-]?\d+$/.test(value);
    if (counted.has(kind) || (isCount && named.has(kind)))
      throw new UsageError(`${flag} counts ${kind} twice, or both counts and names it`);
    if (isCount) {
      const count = Number(value);
      if (!Number.isSafeInteger(count) || count < 0) throw new UsageError(`${flag} cannot count to ${value}`);
      counted.set(kind, count);
      continue;
    }
    const names = named.get(kind) ?? new Set();
    if (names.has(value)) throw new UsageError(`${flag} names ${kind} ${value} twice`);
    named.set(kind, names.add(value));
  }
  return [
    ...[...counted].map(([kind, value]) =>
      GenericResource.create({ discreteResourceSpec: DiscreteGenericResource.create({ kind, value }) }),
    ),
    ...[...named].flatMap(([kind, values]) =>
      [...values].map((value) =>
        GenericResource.create({ namedResourceSpec: NamedGenericResource.create({ kind, value }) }),
      ),
    ),
  ];
}
