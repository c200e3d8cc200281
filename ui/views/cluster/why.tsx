/** What an object waits for, by `Operator.Why`. */
import { useEffect, useState } from "preact/hooks";
import { isLive, read } from "../../cluster-state.ts";
import { CallError } from "../../model/call-error.ts";
import { failureText } from "../../model/cluster/failures.ts";
import { timeOf } from "../../model/cluster/tasks.ts";
import { OperatorService, WhyRequest, type Reason } from "../../../proto/gen/cluster.ts";
import { moment, now } from "../../state.ts";
import { durationText } from "../texts.ts";
import { For } from "./parts.tsx";

/** Milliseconds between questions while nothing changes: reasons can also change with time. */
const askMs = 5_000;

function ReasonView({ reason }: { readonly reason: Reason }) {
  const { atDeadline, deadline, since, tried, waitingFor, wokenBy } = reason;
  const due = timeOf(deadline);
  const left = due === null ? 0 : due - now.value;
  return (
    <li>
      <b>{waitingFor}</b>
      {since !== null && (
        <>
          {" "}
          · <For since={since} />
        </>
      )}
      {wokenBy !== "" && <div>woken by {wokenBy}</div>}
      {due !== null && (
        <div>
          {atDeadline || "gives up"} {left >= 0 ? `in ${durationText(left)}` : `${durationText(-left)} overdue`}
        </div>
      )}
      {tried.length > 0 && (
        <details>
          <summary>tried before ({tried.length})</summary>
          <ul>
            {tried.map((each, index) => (
              <li key={index}>{each}</li>
            ))}
          </ul>
        </details>
      )}
    </li>
  );
}

/** `changes`: asks again when this changes. */
export function Why({ id, changes }: { readonly id: string; readonly changes: unknown }) {
  const [reasons, setReasons] = useState<readonly Reason[] | null>(null);
  const [failure, setFailure] = useState("");
  const live = isLive.value;
  const at = moment.value;
  useEffect(() => {
    if (!live) return;
    let isShown = true;
    const ask = (): void => {
      void read(OperatorService.methods.Why, WhyRequest.create({ subject: id })).then(
        (answer) => {
          if (!isShown) return;
          setReasons(answer.reasons);
          setFailure("");
        },
        (error: unknown) => {
          // It was removed: whoever shows it says so.
          if (isShown && !(error instanceof CallError && error.isGone))
            setFailure(failureText("ask what it waits for", error));
        },
      );
    };
    ask();
    const timer = at === null ? setInterval(ask, askMs) : undefined;
    return () => {
      isShown = false;
      clearInterval(timer);
    };
  }, [id, changes, live, at]);
  return (
    <section class="why">
      <h3>Waits for</h3>
      {failure !== "" && (
        <p class="failure" role="alert">
          {failure}
        </p>
      )}
      {reasons === null ? (
        <p class="empty">…</p>
      ) : (
        <ul>
          {reasons.map((reason, index) => (
            <ReasonView key={index} reason={reason} />
          ))}
        </ul>
      )}
    </section>
  );
}
