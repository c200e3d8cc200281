/** Bodies of the requests that create and start a command in a container. */
import { TaskExec } from "../../../proto/gen/messages.ts";
import { checked, flag, shape, text, texts, type Field } from "../shape.ts";

/** Height and width, which clients also send with `resize`. */
const consoleSize: Field<never> = {
  schema: {
    type: ["array", "null"],
    goType: "[2]uint",
    items: { type: ["integer"], goType: "uint64", minimum: 0, maximum: 2 ** 32 - 1 },
  },
  put: () => undefined,
};

export const execBody = shape("types.ExecConfig", TaskExec, {
  Cmd: texts("command"),
  Tty: flag("tty"),
  User: checked(text("user")),
  Privileged: checked(flag("privileged")),
  AttachStdin: checked(flag("stdin")),
  AttachStdout: checked(flag("stdout")),
  AttachStderr: checked(flag("stderr")),
  Detach: checked(flag("detach")),
  DetachKeys: checked(text("keys")),
  Env: checked(texts("env")),
  WorkingDir: checked(text("dir")),
  ConsoleSize: consoleSize,
});

export const execStartBody = shape("types.ExecStartCheck", TaskExec, {
  Detach: checked(flag("detach")),
  Tty: flag("tty"),
  ConsoleSize: consoleSize,
});
