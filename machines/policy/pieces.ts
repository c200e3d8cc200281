/**
 * Splits updates into pieces for a stream: none much larger than 100 kB, and only the last one in sync. The receiver joins them
 * again before applying, so a large set is never visible in part.
 */
import { DataplaneSet, DataplaneSetDelta, DataplaneUpdate } from "../../proto/gen/messages.ts";

type Update = DataplaneUpdate;

/** About 20 bytes each. */
const membersMax = 5_000;
/** Policies, endpoints and the like: a few hundred bytes each, more for a policy with many rules. */
const objectsMax = 200;

/** A piece that can still take sets. */
interface Open {
  readonly sets: DataplaneSet[];
  readonly setDeltas: DataplaneSetDelta[];
  members: number;
}

function chunks<Of>(list: readonly Of[], size: number): Of[][] {
  const parts: Of[][] = [];
  for (let at = 0; at < list.length; at += size) parts.push(list.slice(at, at + size));
  return parts;
}

/** At least one piece, also for an empty update. `traceparent`: for the last piece. */
export function piecesOf(update: Update, traceparent = ""): Update[] {
  const pieces: Partial<Update>[] = [];
  let open: Open | null = null;
  const pieceFor = (members: number): Open => {
    if (open === null || open.members + members > membersMax) {
      open = { sets: [], setDeltas: [], members: 0 };
      pieces.push({ sets: open.sets, setDeltas: open.setDeltas });
    }
    // Empty sets count, too.
    open.members += members + 1;
    return open;
  };
  for (const { id, type, members } of update.sets) {
    const [first = [], ...rest] = chunks(members, membersMax);
    pieceFor(first.length).sets.push(DataplaneSet.create({ id, type, members: first }));
    for (const added of rest) pieceFor(added.length).setDeltas.push(DataplaneSetDelta.create({ id, added }));
  }
  for (const { id, added, removed } of update.setDeltas) {
    for (const part of chunks(removed, membersMax))
      pieceFor(part.length).setDeltas.push(DataplaneSetDelta.create({ id, removed: part }));
    for (const part of chunks(added, membersMax))
      pieceFor(part.length).setDeltas.push(DataplaneSetDelta.create({ id, added: part }));
  }
  const { profiles, policies, endpoints, hostEndpoints, hosts } = update;
  const lists = { profiles, policies, endpoints, hostEndpoints, hosts };
  for (const [name, list] of Object.entries(lists))
    for (const part of chunks<unknown>(list, objectsMax)) pieces.push({ [name]: part });
  pieces.push({
    removedEndpoints: update.removedEndpoints,
    removedHostEndpoints: update.removedHostEndpoints,
    removedPolicies: update.removedPolicies,
    removedProfiles: update.removedProfiles,
    removedSets: update.removedSets,
    removedHosts: update.removedHosts,
  });
  const { version } = update;
  return pieces.map((fields, at) =>
    DataplaneUpdate.create({
      ...fields,
      version,
      fresh: update.fresh && at === 0,
      config: at === 0 ? update.config : null,
      inSync: update.inSync && at === pieces.length - 1,
      traceparent: at === pieces.length - 1 ? traceparent : "",
    }),
  );
}

/** Joins the pieces of one update; `pieces` must not be empty. */
export function joined(pieces: readonly Update[]): Update {
  if (pieces.length === 1) return pieces[0] as Update;
  const sets = new Map<string, { readonly type: DataplaneSet["type"]; readonly members: string[] }>();
  const deltas = new Map<string, { readonly added: string[]; readonly removed: string[] }>();
  for (const piece of pieces) {
    for (const { id, type, members } of piece.sets) sets.set(id, { type, members: [...members] });
    for (const { id, added, removed } of piece.setDeltas) {
      const whole = sets.get(id);
      if (whole !== undefined) {
        for (const member of added) whole.members.push(member);
        continue;
      }
      const delta = deltas.get(id) ?? { added: [], removed: [] };
      deltas.set(id, delta);
      for (const member of added) delta.added.push(member);
      for (const member of removed) delta.removed.push(member);
    }
  }
  const last = pieces.at(-1) as Update;
  return DataplaneUpdate.create({
    fresh: pieces.some(({ fresh }) => fresh),
    inSync: last.inSync,
    version: last.version,
    config: pieces.find(({ config }) => config !== null)?.config ?? null,
    sets: [...sets].map(([id, of]) => DataplaneSet.create({ id, ...of })),
    setDeltas: [...deltas].map(([id, of]) => DataplaneSetDelta.create({ id, ...of })),
    profiles: pieces.flatMap(({ profiles }) => profiles),
    policies: pieces.flatMap(({ policies }) => policies),
    endpoints: pieces.flatMap(({ endpoints }) => endpoints),
    hostEndpoints: pieces.flatMap(({ hostEndpoints }) => hostEndpoints),
    hosts: pieces.flatMap(({ hosts }) => hosts),
    removedEndpoints: pieces.flatMap(({ removedEndpoints }) => removedEndpoints),
    removedHostEndpoints: pieces.flatMap(({ removedHostEndpoints }) => removedHostEndpoints),
    removedPolicies: pieces.flatMap(({ removedPolicies }) => removedPolicies),
    removedProfiles: pieces.flatMap(({ removedProfiles }) => removedProfiles),
    removedSets: pieces.flatMap(({ removedSets }) => removedSets),
    removedHosts: pieces.flatMap(({ removedHosts }) => removedHosts),
  });
}
