/** Prompts for a password without echo. */
import { UserError } from "../../lib/user-error.ts";

const [interrupt, endOfInput, backspace, deletion] = ["\u0003", "\u0004", "\b", "\u007f"];

/** Throws UserError without a terminal, and when the prompt is interrupted. */
export async function askPassword(question: string): Promise<string> {
  const { stdin, stderr } = process;
  if (!stdin.isTTY) throw new UserError("cannot prompt for the password without a terminal: set --password-file");
  stderr.write(question);
  stdin.setRawMode(true);
  stdin.setEncoding("utf8");
  stdin.resume();
  try {
    return await new Promise<string>((resolve, reject) => {
      let typed = "";
      const onData = (text: string): void => {
        for (const key of text) {
          if (key === interrupt || key === endOfInput) {
            stdin.off("data", onData);
            return reject(new UserError("login interrupted"));
          }
          if (key === "\r" || key === "\n") {
            stdin.off("data", onData);
            return resolve(typed);
          }
          typed = key === backspace || key === deletion ? Array.from(typed).slice(0, -1).join("") : typed + key;
        }
      };
      stdin.on("data", onData);
    });
  } finally {
    stdin.setRawMode(false);
    stdin.pause();
    stderr.write("\n");
  }
}
