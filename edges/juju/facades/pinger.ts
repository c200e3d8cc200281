/**
 * Pinger: clients show with it that they live. To the server any frame says that, so that a ping does nothing. Agents of the
 * seed's style have one with an id, which they stop when they end.
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
