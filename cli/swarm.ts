/** `muster swarm`: the cluster with Docker's verbs, one file per verb. */
import type { Command } from "./command.ts";
import { ca } from "./swarm/ca.ts";
import { joinToken } from "./swarm/join-token.ts";
import { unlockKey } from "./swarm/unlock-key.ts";
import { unlock } from "./swarm/unlock.ts";
import { update } from "./swarm/update.ts";

export const commands: Readonly<Record<string, Command>> = {
  ca,
  "join-token": joinToken,
  update,
  unlock,
  "unlock-key": unlockKey,
};
