/** Links to the actors that handle an object, in the view of charts. */
import { statesText, type Actor } from "../../../proto/feed/actors.ts";
import { addressOf, frame, membership, shown } from "../../state.ts";

export function ActorLinks({ id }: { readonly id: string }) {
  void membership.value;
  void frame.value;
  const found: Actor[] = [];
  for (const process of shown.value.processes.values())
    for (const actor of process.actors.values()) if (actor.id.includes(id)) found.push(actor);
  if (found.length === 0) return null;
  return (
    <section>
      <h3>Actors</h3>
      <ul class="links">
        {found.map((actor) => (
          <li key={`${actor.process} ${actor.id}`}>
            <a href={addressOf({ view: "actor", process: actor.process, actor: actor.id })}>
              {actor.kind} <small>{actor.process}</small>
            </a>{" "}
            <span class="states">{statesText(actor.states)}</span>
          </li>
        ))}
      </ul>
    </section>
  );
}
