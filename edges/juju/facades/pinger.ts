/** Pinger: clients show with it that they live. To the server any frame says that, so that a ping does nothing. */
import type { Facade } from "../facade.ts";

export const pinger: Facade = {
  type: "Pinger",
  versions: [0, 1],
  who: "everybody",
  id: "none",
  methods: {
    Ping: { needs: "read-only", run: () => ({}) },
    Stop: { needs: "read-only", run: () => ({}) },
  },
};
