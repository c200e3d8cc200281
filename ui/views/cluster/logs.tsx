/** The output of a task, or of all tasks of a service. */
import { useEffect, useRef, useState } from "preact/hooks";
import { isLive, objects, nodeName } from "../../cluster-state.ts";
import { LostCallError } from "../../model/call-error.ts";
import { failureText } from "../../model/cluster/failures.ts";
import { logLine, logLinesMax, tailOf, type LogLine } from "../../model/cluster/log-lines.ts";
import { taskName } from "../../model/cluster/tasks.ts";
import {
  LogSelector,
  LogsService,
  LogSubscriptionOptions,
  SubscribeLogsRequest,
  type SubscribeLogsMessage,
} from "../../../proto/gen/cluster.ts";
import { streamed } from "../../asks.ts";
import { moment } from "../../state.ts";
import { isRecording } from "../../time-line.ts";
import { timeText } from "../texts.ts";
import { useList } from "../list.ts";

/** Pixels, as in the style sheet. */
const rowHeight = 20;
/** Milliseconds between drawings of new lines. */
const drawMs = 100;
/** Distance in pixels from the end within which the view follows new lines. */
const followWithin = 40;

const tails = { "100": 100, "1000": 1_000, all: null } as const;
type Tail = keyof typeof tails;

interface Shown extends LogLine {
  readonly task: string;
}

type Target = Partial<Pick<LogSelector, "taskIds" | "serviceIds">>;

function Lines({
  target,
  tail,
  isFollowing,
}: {
  readonly target: Target;
  readonly tail: Tail;
  readonly isFollowing: boolean;
}) {
  const scroller = useRef<HTMLDivElement>(null);
  const [lines, setLines] = useState<readonly Shown[]>([]);
  const [dropped, setDropped] = useState(0);
  const [ended, setEnded] = useState("");
  const live = isLive.value;
  const list = useList(scroller, lines.length, rowHeight);
  const key = JSON.stringify(target);
  useEffect(() => {
    if (!live) return;
    const controller = new AbortController();
    let all: Shown[] = [];
    let gone = 0;
    let timer: ReturnType<typeof setTimeout> | null = null;
    setLines([]);
    setEnded("");
    const draw = (): void => {
      timer = null;
      const element = scroller.current;
      const isAtEnd =
        element === null || element.scrollHeight - element.scrollTop - element.clientHeight < followWithin;
      setLines([...all]);
      setDropped(gone);
      if (isAtEnd) requestAnimationFrame(() => element?.scrollTo({ top: element.scrollHeight }));
    };
    const onMessage = ({ messages }: SubscribeLogsMessage): void => {
      for (const message of messages) {
        const task = objects.value.tasks.get(message.context?.taskId ?? "");
        const name = target.taskIds === undefined && task !== undefined ? taskName(task, nodeName.value) : "";
        all.push({ ...logLine(message), task: name });
      }
      if (all.length > logLinesMax) {
        gone += all.length - logLinesMax;
        all = all.slice(-logLinesMax);
      }
      timer ??= setTimeout(draw, drawMs);
    };
    const request = SubscribeLogsRequest.create({
      selector: LogSelector.create(target),
      options: LogSubscriptionOptions.create({ follow: isFollowing, tail: tailOf(tails[tail]) }),
    });
    streamed(LogsService.methods.SubscribeLogs, request, onMessage, controller.signal).then(
      () => setEnded("End of the output."),
      (error: unknown) => {
        if (controller.signal.aborted) return;
        const isLost = error instanceof LostCallError;
        setEnded(
          isLost
            ? "The connection was lost. The output is read again with the next one."
            : failureText("read the output", error),
        );
      },
    );
    return () => {
      controller.abort();
      if (timer !== null) clearTimeout(timer);
    };
  }, [key, tail, isFollowing, live]);
  return (
    <>
      {dropped > 0 && <p class="note">{dropped.toLocaleString("en")} earlier lines are no longer shown here.</p>}
      <div class="scroll" ref={scroller} tabIndex={0} role="log" aria-label="Output" aria-live="off">
        <ol style={{ height: `${list.height}px` }}>
          {list.items.map(({ index, start }) => {
            const line = lines[index];
            if (line === undefined) return null;
            return (
              <li key={index} class={line.isError ? "err" : ""} style={{ transform: `translateY(${start}px)` }}>
                <time>{line.atMs === 0 ? "" : timeText(line.atMs)}</time>
                {line.isError && <b title="standard error">E</b>}
                {line.task !== "" && <span class="of">{line.task}</span>}
                <span class="line">{line.text}</span>
              </li>
            );
          })}
        </ol>
      </div>
      <p class="note" role="status">
        {ended || (lines.length === 0 ? "No output yet." : "")}
      </p>
    </>
  );
}

export function LogsPanel({ target }: { readonly target: Target }) {
  const [isOpen, setOpen] = useState(false);
  const [tail, setTail] = useState<Tail>("100");
  const [isFollowing, setFollowing] = useState(true);
  if (isRecording.value)
    return (
      <section class="logs">
        <h3>Logs</h3>
        <p class="note">A recording does not have the output of tasks.</p>
      </section>
    );
  // The output of tasks is not in the history.
  if (moment.value !== null) return null;
  return (
    <section class="logs">
      <h3>
        <button type="button" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
          {isOpen ? "▾" : "▸"} Logs
        </button>
      </h3>
      {isOpen && (
        <>
          <p class="buttons">
            <label>
              Last{" "}
              <select value={tail} onChange={({ currentTarget }) => setTail(currentTarget.value as Tail)}>
                {Object.keys(tails).map((each) => (
                  <option key={each}>{each}</option>
                ))}
              </select>{" "}
              lines
            </label>
            <label>
              <input
                type="checkbox"
                checked={isFollowing}
                onChange={({ currentTarget }) => setFollowing(currentTarget.checked)}
              />{" "}
              follow
            </label>
          </p>
          <Lines target={target} tail={tail} isFollowing={isFollowing} />
        </>
      )}
    </section>
  );
}
