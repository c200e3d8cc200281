/** `muster why`: what a task, service, node, network or volume is waiting for. */
import { OperatorService, WhyRequest, WhyResponse, type Reason } from "../proto/gen/messages.ts";
import { command, formatOf, plainFormat, type Command } from "./command.ts";
import { withManager } from "./manager-client.ts";
import { ago, millisecondsOf } from "./values.ts";

/** Such as `retries at: `, aligned with the other labels. */
function deadlineLabel({ atDeadline }: Reason): string {
  return `${atDeadline === "" ? "gives up" : atDeadline} at:`.padEnd(12);
}

function lines(reason: Reason, now: number): readonly string[] {
  const since = millisecondsOf(reason.since);
  const deadline = millisecondsOf(reason.deadline);
  return [
    `  waiting for: ${reason.waitingFor}`,
    ...(since === null ? [] : [`  since:       ${new Date(since).toISOString()} (${ago(reason.since, now)})`]),
    ...(reason.wokenBy === "" ? [] : [`  woken by:    ${reason.wokenBy}`]),
    ...(deadline === null ? [] : [`  ${deadlineLabel(reason)} ${new Date(deadline).toISOString()}`]),
    ...reason.tried.map((tried, at) => `  ${at === 0 ? "tried:      " : "            "} ${tried}`),
  ];
}

export const why: Command = command({
  operands: "TASK|SERVICE|NODE|NETWORK|VOLUME",
  min: 1,
  max: 1,
  summary: "Explain what a task, service, node, network or volume is waiting for, since when, and what would wake it.",
  options: { format: plainFormat },
  run: ({ values, operands, shell }) =>
    withManager(shell, async (client) => {
      const request = WhyRequest.create({ subject: operands[0] as string });
      const answer = await client.call(OperatorService.methods.Why, request);
      if (formatOf(values.format) === "json") {
        shell.print(JSON.stringify(WhyResponse.toJson(answer)));
        return;
      }
      shell.print(`${answer.kind} ${answer.name === "" ? answer.id : `${answer.name} (${answer.id})`}`);
      if (answer.session !== "") shell.print(`  session:     ${answer.session}`);
      if (answer.reasons.length === 0) shell.print("  waiting for: nothing: it is where it should be");
      for (const reason of answer.reasons) shell.print(lines(reason, shell.now()).join("\n"));
    }),
});
