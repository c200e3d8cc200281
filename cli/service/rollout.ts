/** `muster service rollout pause|resume|step|abort|status SERVICE`. */
import {
  ControlRolloutRequest,
  ControlRolloutRequest_Action,
  ControlRolloutResponse,
  OperatorService,
} from "../../proto/gen/messages.ts";
import { command, formatOf, plainFormat, type Command } from "../command.ts";
import { UsageError } from "../../lib/user-error.ts";
import { withManager } from "../manager-client.ts";
import { ago, millisecondsOf } from "../values.ts";

const actions: Readonly<Record<string, ControlRolloutRequest_Action>> = {
  status: ControlRolloutRequest_Action.LOOK,
  pause: ControlRolloutRequest_Action.PAUSE,
  resume: ControlRolloutRequest_Action.RESUME,
  step: ControlRolloutRequest_Action.STEP,
  abort: ControlRolloutRequest_Action.ABORT,
};

/** Human-readable status; `now` in milliseconds since the epoch. */
function lines(answer: ControlRolloutResponse, now: number): readonly string[] {
  const { blockers, changing, done, failed, rollout, updateStatus, waiting } = answer;
  const name = answer.name === "" ? answer.serviceId : answer.name;
  const message = updateStatus?.message ?? "";
  const head = `${name}: ${answer.phase === "none" ? "no rollout" : answer.phase}${message === "" ? "" : ` (${message})`}`;
  if (rollout === null) return [head];
  const deadline = millisecondsOf(rollout.deadline);
  const isOver = updateStatus?.completedAt != null;
  return [
    head,
    `  slots:    ${done} done, ${changing} changing, ${waiting} waiting, ${failed} failed`,
    `  failures: ${rollout.failures} tasks, in ${rollout.failedSlots} of ${rollout.total} slots`,
    `  started:  ${ago(rollout.startedAt, now)}`,
    ...(deadline === null || isOver ? [] : [`  deadline: ${new Date(deadline).toISOString()}`]),
    ...blockers.map(({ reason, since }) => `  waiting for ${reason} (since ${ago(since, now)})`),
  ];
}

export const rollout: Command = command({
  operands: "pause|resume|step|abort|status SERVICE",
  min: 2,
  max: 2,
  summary: "Pause, resume, step or abort an update or rollback, or show its progress and what blocks it.",
  options: { format: plainFormat },
  run: ({ values, operands, shell }) => {
    const [verb, service] = operands as readonly [string, string];
    const action = actions[verb];
    if (action === undefined) {
      throw new UsageError(`unknown action "${verb}": expected one of ${Object.keys(actions).join(", ")}`);
    }
    const format = formatOf(values.format);
    return withManager(shell, async (client) => {
      const request = ControlRolloutRequest.create({ service, action });
      const answer = await client.call(OperatorService.methods.ControlRollout, request);
      if (format === "json") shell.print(JSON.stringify(ControlRolloutResponse.toJson(answer)));
      else shell.print(lines(answer, shell.now()).join("\n"));
    });
  },
});
