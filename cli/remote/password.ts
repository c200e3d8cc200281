/** Asks for a password at the terminal, without showing it. */
import { UserError } from "../user-error.ts";

const [interrupt, endOfInput, backspace, deletion] = ["\u0003", "\u0004", "\b", "\u007f"];

/** Throws UserError where there is no terminal, and when the question is interrupted. */
export async function askPassword(question: string): Promise<string> {
  const { stdin, stderr } = process;
  if (!stdin.isTTY) throw new UserError("there is no terminal to ask for the password at: set --password-file");
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
            return reject(new UserError("interrupted: nobody was logged in"));
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
