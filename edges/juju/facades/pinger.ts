/**
 * Pinger: clients use it to show that they are alive. Any frame shows that to the server, so a ping does nothing. Agents of the
 * seed's style have a pinger with an id, which they stop when they exit.
 */
import type { Facade } from "../facade.ts";

export const pinger: Facade = {
  type: "Pinger",
  versions: [0, 1],
  who: "everybody",
  id: "entity",
  lookUp({ id, session }) {
    if (id !== "") session.resources.get("Pinger", id);
  },
  methods: {
    Ping: { needs: "read-only", run: () => ({}) },
    Stop: {
      needs: "read-only",
      run({ id, session }) {
        if (id !== "") session.resources.stop("Pinger", id);
        return {};
      },
    },
  },
};
