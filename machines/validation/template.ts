/**
 * Whether a text with templates (`{{.Task.Slot}}`) can be expanded: a service is refused at once rather than each of
 * its tasks rejected on some node. Only the forms that SwarmKit documents are known.
 */
import { invalid, type Refusal } from "../refusal.ts";

const fields = new Set([
  ".Service.ID",
  ".Service.Name",
  ".Service.Labels",
  ".Node.ID",
  ".Node.Hostname",
  ".Node.Platform.Architecture",
  ".Node.Platform.OS",
  ".Task.ID",
  ".Task.Name",
  ".Task.Slot",
]);
/** Forms that take a label's key: `.Service.Labels.x`, `index .Service.Labels "x"`, and `join` over a list of texts. */
const labelField = /^\.Service\.Labels\.[A-Za-z_][\w]*$/;
const indexCall = /^index\s+\.Service\.Labels\s+"[^"]*"$/;
const joinCall = /^join\s/;

export function checkTemplate(text: string): Refusal | null {
  for (let from = text.indexOf("{{"); from >= 0; from = text.indexOf("{{", from)) {
    const to = text.indexOf("}}", from + 2);
    if (to < 0) return invalid(`expanding template "${text}" failed: unclosed action`);
    const body = text
      .slice(from + 2, to)
      .replace(/^-\s|\s-$/g, "")
      .trim();
    if (!fields.has(body) && !labelField.test(body) && !indexCall.test(body) && !joinCall.test(body)) {
      return invalid(`expanding template "${text}" failed: "{{${body}}}" is not known`);
    }
    from = to + 2;
  }
  return null;
}
