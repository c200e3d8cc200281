/** Small parts that the cluster's views share. */
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { isLive, offers } from "../../cluster-state.ts";
import { failureText } from "../../model/cluster/failures.ts";
import type { Action } from "../../model/cluster/permissions.ts";
import { lookOf, lookTexts, timeOf, type Look } from "../../model/cluster/tasks.ts";
import type { Task, Timestamp } from "../../../proto/gen/cluster.ts";
import type { ClusterKind } from "../../model/route.ts";
import { addressOf, now } from "../../state.ts";
import { durationText } from "../texts.ts";

export const linkTo = (part: ClusterKind, id: string): string => addressOf({ view: "cluster", part, id });
/** The address of the view without details. */
export const overview = (): string => addressOf({ view: "cluster", part: "overview" });

/** A picture of a state; its text stands beside it. */
export function Mark({ look }: { readonly look: Look }) {
  return <span class={`mark ${look}`} aria-hidden="true" />;
}

export function LookText({ task, text }: { readonly task: Task; readonly text?: string }) {
  const look = lookOf(task);
  return (
    <span class="look">
      <Mark look={look} /> {text ?? lookTexts[look]}
    </span>
  );
}

/** `3 min 5 s ago`; empty without a time. */
export function Ago({ time }: { readonly time: Timestamp | null | undefined }) {
  const at = timeOf(time);
  if (at === null) return null;
  return <time dateTime={new Date(at).toISOString()}>{durationText(now.value - at)} ago</time>;
}

/** `for 3 min 5 s`; empty without a time. */
export function For({ since }: { readonly since: Timestamp | null | undefined }) {
  const at = timeOf(since);
  if (at === null) return null;
  return <time dateTime={new Date(at).toISOString()}>for {durationText(now.value - at)}</time>;
}

/** A part of a whole, beside a text that says it in numbers. */
export function Gauge({
  part,
  whole,
  kind = "",
}: {
  readonly part: number;
  readonly whole: number;
  readonly kind?: string;
}) {
  const percent = whole === 0 ? 100 : Math.min(100, (part * 100) / whole);
  return (
    <span class={`gauge ${kind}`} aria-hidden="true">
      <span style={{ width: `${percent}%` }} />
    </span>
  );
}

interface ActButtonProps {
  readonly action: Action;
  /** The end of a sentence: `Cannot …: why`. */
  readonly what: string;
  readonly act: () => Promise<unknown>;
  readonly children: ComponentChildren;
  readonly title?: string;
  readonly isMain?: boolean;
}

/** A button that the role allows, with what went wrong beside it. Disabled without a connection. */
export function ActButton({ action, what, act, children, title, isMain = false }: ActButtonProps) {
  const [failure, setFailure] = useState("");
  const [isBusy, setBusy] = useState(false);
  if (!offers(action)) return null;
  function onClick(): void {
    setBusy(true);
    setFailure("");
    void act()
      .catch((error: unknown) => setFailure(failureText(what, error)))
      .then(() => setBusy(false));
  }
  return (
    <span class="act">
      <button
        type="button"
        class={isMain ? "main" : undefined}
        disabled={isBusy || !isLive.value}
        title={isLive.value ? title : "Not possible without a connection"}
        onClick={onClick}
      >
        {isBusy ? "…" : children}
      </button>
      {failure !== "" && (
        <span class="failure" role="alert">
          {failure}
        </span>
      )}
    </span>
  );
}

/** Opens a form or plan. Not shown if the role does not allow what it leads to. */
export function OpenButton({
  action,
  isOpen,
  onClick,
  children,
}: {
  readonly action: Action;
  readonly isOpen: boolean;
  readonly onClick: () => void;
  readonly children: ComponentChildren;
}) {
  if (!offers(action)) return null;
  return (
    <button type="button" aria-expanded={isOpen} disabled={!isLive.value} onClick={onClick}>
      {children}
    </button>
  );
}
