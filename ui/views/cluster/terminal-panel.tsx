/** A terminal in a task: the emulator is loaded when it is first opened. */
import { useEffect, useRef, useState } from "preact/hooks";
import { isLive } from "../../cluster-state.ts";
import { commandWords } from "../../model/cluster/command-words.ts";
import { openTerminal, type TerminalSession } from "../../task-terminal.ts";

const shellDefault = "/bin/sh";

function Screen({
  taskId,
  command,
  onEnd,
}: {
  readonly taskId: string;
  readonly command: readonly string[];
  readonly onEnd: (text: string) => void;
}) {
  const element = useRef<HTMLDivElement>(null);
  useEffect(() => {
    let session: TerminalSession | null = null;
    let isGone = false;
    void import("./terminal.ts").then(
      ({ Screen: Emulator }) => {
        if (isGone || element.current === null) return;
        const screen = new Emulator(element.current);
        session = openTerminal(taskId, command, screen, onEnd);
      },
      (error: unknown) => onEnd(`The terminal cannot be loaded: ${String(error)}`),
    );
    return () => {
      isGone = true;
      session?.close();
    };
  }, []);
  return <div class="screen" ref={element} />;
}

export function TerminalPanel({ taskId }: { readonly taskId: string }) {
  const [text, setText] = useState(shellDefault);
  /** Counts the terminals, so that each has an element of its own. */
  const [number, setNumber] = useState(0);
  const [isShown, setShown] = useState(false);
  const [ended, setEnded] = useState("");
  const isOpen = isShown && ended === "";
  const command = commandWords(text);
  return (
    <section class="terminal">
      <h3>Terminal</h3>
      <form
        class="buttons"
        onSubmit={(event) => {
          event.preventDefault();
          if (isOpen || command.length === 0) return;
          setEnded("");
          setNumber(number + 1);
          setShown(true);
        }}
      >
        <label>
          Command{" "}
          <input
            type="text"
            spellcheck={false}
            disabled={isOpen}
            value={text}
            onInput={({ currentTarget }) => setText(currentTarget.value)}
          />
        </label>
        {isOpen ? (
          <button type="button" onClick={() => setShown(false)}>
            Close
          </button>
        ) : (
          <button type="submit" disabled={!isLive.value || command.length === 0}>
            Open
          </button>
        )}
      </form>
      {/* It stays after the command's end: a reader wants its last words. */}
      {isShown && <Screen key={number} taskId={taskId} command={command} onEnd={setEnded} />}
      {ended !== "" && (
        <p class="note" role="status">
          {ended}
        </p>
      )}
    </section>
  );
}
