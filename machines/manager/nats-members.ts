/**
 * The next step towards a cluster of three nats-servers whose managers all belong to the cluster: compares the servers that NATS
 * has with the managers in the state. One manager at a time takes steps that change something.
 *
 * NM1: a server is removed only if its manager was demoted or removed or has another server, or if there are more than three; and
 *      only while two other members have a current copy of every stream.
 * NM2: a server is added only while fewer than three managers have one, and only that of another live manager.
 */

/** Servers that keep copies: more gain nothing, and a fourth voter makes the quorum three. */
const membersWanted = 3;
/** Copies that a majority of three needs. */
const copiesNeeded = 2;

interface MemberServer {
  readonly name: string;
  /** Id of its manager's node. */
  readonly managerId: string;
  /** Whether it follows the cluster. */
  readonly isCurrent: boolean;
}

export interface NatsMembersFacts {
  readonly ownId: string;
  readonly managers: readonly { readonly id: string; readonly alive: boolean }[];
  /** Servers that NATS counts as members, running or not. */
  readonly servers: readonly MemberServer[];
  /** For each stream: names of the servers with a current copy. */
  readonly copies: readonly (readonly string[])[];
  /** Names of the servers in this manager's own list. */
  readonly known: readonly string[];
}

export type NatsMembersStep =
  | { readonly kind: "none" }
  /** Another manager has a newer list. */
  | { readonly kind: "learn" }
  | { readonly kind: "add"; readonly managerId: string }
  | { readonly kind: "remove"; readonly server: string };

export function natsMembersStep(facts: NatsMembersFacts): NatsMembersStep {
  const { copies, known, managers, ownId, servers } = facts;
  const isAlive = (id: string): boolean => managers.some((manager) => manager.id === id && manager.alive);
  const gone = servers.filter((server) => isGone(server, facts));
  const members = servers.filter((server) => !gone.includes(server));
  const acting = members.map(({ managerId }) => managerId).filter(isAlive);
  const isKnown = (name: string): boolean => known.includes(name);
  if (!members.every(({ name }) => isKnown(name))) return { kind: "learn" };
  if (acting.toSorted()[0] !== ownId) {
    const isSame = known.length === members.length || gone.some(({ name }) => isKnown(name));
    return isSame ? { kind: "none" } : { kind: "learn" };
  }
  if (members.length < membersWanted) {
    const spare = managers.find(({ alive, id }) => alive && !members.some(({ managerId }) => managerId === id));
    return spare === undefined ? { kind: "none" } : { kind: "add", managerId: spare.id };
  }
  const excess = members.length > membersWanted && members.every(({ isCurrent }) => isCurrent);
  const [next] = [...gone, ...(excess ? members.filter(({ managerId }) => managerId !== ownId).toReversed() : [])];
  if (next === undefined) return { kind: "none" };
  const others = members.filter(({ name }) => name !== next.name).map(({ name }) => name);
  const isSafe = copies.every((names) => names.filter((name) => others.includes(name)).length >= copiesNeeded); // NM1
  return isSafe ? { kind: "remove", server: next.name } : { kind: "none" };
}

/** A server without a manager, or one that its manager has replaced. */
function isGone(server: MemberServer, { managers, servers }: NatsMembersFacts): boolean {
  if (!managers.some(({ id }) => id === server.managerId)) return true;
  return (
    !server.isCurrent &&
    servers.some(
      ({ isCurrent, managerId, name }) => isCurrent && managerId === server.managerId && name !== server.name,
    )
  );
}

/** Says to the operator which copies are missing; null while there are three. */
export function missingCopies(facts: NatsMembersFacts): string | null {
  const { copies, managers, servers } = facts;
  const fewest = Math.min(...copies.map((names) => names.length));
  const gone = servers.filter((server) => isGone(server, facts));
  if (fewest >= membersWanted && gone.length === 0) return null;
  const lacking = servers.filter(({ name }) => !copies.every((names) => names.includes(name)));
  const ids = [...new Set(lacking.map(({ managerId }) => managerId))];
  const away = ids.filter((id) => managers.some((manager) => manager.id === id));
  const said = `the log has ${Math.max(0, fewest)} of ${membersWanted} current copies`;
  const spares = managers.filter(({ alive, id }) => alive && !servers.some(({ managerId }) => managerId === id));
  if (away.length > 0)
    return `${said}: the nats-server of manager ${away.join(" and ")} is away or copies the log; if it does not come back, demote and remove that manager, and join another`;
  if (gone.length > 0 && spares.length === 0)
    return fewest >= membersWanted
      ? `a copy of the log is still on a machine whose manager was removed: join another manager to replace it`
      : `${said}: join another manager to have the third again`;
  return `${said}: another manager's nats-server is taking over`;
}
