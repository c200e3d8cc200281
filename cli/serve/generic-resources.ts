/** Generic resources of a node, in the syntax of dockerd's flag of the same name. */
import { DiscreteGenericResource, GenericResource, NamedGenericResource } from "../../proto/gen/messages.ts";
import { UsageError } from "../../lib/user-error.ts";

const flag = "--node-generic-resource";

/**
 * `ssd=3` is a count of identical units, `gpu=UUID1` one named unit; several are separated by commas or in repeated flags.
 * Throws UsageError, also for a kind that is both counted and named.
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
      throw new UsageError(`${flag} sets "${kind}" more than once: give one count, or names only`);
    if (isCount) {
      const count = Number(value);
      if (!Number.isSafeInteger(count) || count < 0) throw new UsageError(`${flag}: invalid count "${value}"`);
      counted.set(kind, count);
      continue;
    }
    const names = named.get(kind) ?? new Set();
    if (names.has(value)) throw new UsageError(`${flag} sets "${kind}=${value}" more than once`);
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
