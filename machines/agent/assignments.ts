/** Sorts an assignments message by kind: a message may list a task before its dependencies. */
import {
  AssignmentChange_AssignmentAction as Action,
  AssignmentsMessage_Type as Kind,
  type AssignmentsMessage,
  type Config,
  type Secret,
  type Task,
  type VolumeAssignment,
} from "../../proto/gen/messages.ts";

interface AssignmentPlan {
  /** The message contains all assignments: whatever it does not list is no longer assigned. */
  readonly isComplete: boolean;
  readonly secrets: readonly Secret[];
  readonly configs: readonly Config[];
  readonly tasks: readonly Task[];
  readonly volumes: readonly VolumeAssignment[];
  readonly removedSecrets: readonly string[];
  readonly removedConfigs: readonly string[];
  readonly removedTasks: readonly string[];
  /** Whole assignments: a volume that this run of the agent never heard of may still be mounted. */
  readonly removedVolumes: readonly VolumeAssignment[];
}

/**
 * Sorts a message. `known`: ids of the tasks that the agent has. Volumes are mounted or released only when a message says
 * so, never because it does not list them. Unknown kinds (of later versions) are ignored.
 */
export function planAssignments(message: AssignmentsMessage, known: Iterable<string>): AssignmentPlan {
  const plan = {
    isComplete: message.type === Kind.COMPLETE,
    secrets: [] as Secret[],
    configs: [] as Config[],
    tasks: [] as Task[],
    volumes: [] as VolumeAssignment[],
    removedSecrets: [] as string[],
    removedConfigs: [] as string[],
    removedTasks: [] as string[],
    removedVolumes: [] as VolumeAssignment[],
  };
  for (const { assignment, action } of message.changes) {
    const isRemoval = action === Action.REMOVE;
    const { task = null, secret = null, config = null, volume = null } = assignment ?? {};
    if (isRemoval) {
      if (task !== null) plan.removedTasks.push(task.id);
      if (secret !== null) plan.removedSecrets.push(secret.id);
      if (config !== null) plan.removedConfigs.push(config.id);
      if (volume !== null) plan.removedVolumes.push(volume);
    } else {
      if (task !== null) plan.tasks.push(task);
      if (secret !== null) plan.secrets.push(secret);
      if (config !== null) plan.configs.push(config);
      if (volume !== null) plan.volumes.push(volume);
    }
  }
  if (plan.isComplete) {
    const listed = new Set(plan.tasks.map(({ id }) => id));
    for (const id of known) if (!listed.has(id)) plan.removedTasks.push(id);
  }
  return plan;
}
