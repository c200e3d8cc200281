/** Text for HTML and XML. */

const marks: Readonly<Record<string, string>> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };

/** For text and for values of attributes in double quotation marks. */
export function escaped(text: string): string {
  return text.replaceAll(/[&<>"]/g, (mark) => marks[mark] ?? mark);
}

/** For text only, which may contain quotation marks. */
export function escapedText(text: string): string {
  return text.replaceAll(/[&<>]/g, (mark) => marks[mark] ?? mark);
}
