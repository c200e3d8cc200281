/** Parts of an HTML page. Every text goes through `escaped`. */

const entities: Readonly<Record<string, string>> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&quot;",
  "'": "&#39;",
};

/** For text and for quoted attributes. */
export function escaped(text: string): string {
  return text.replaceAll(/[&<>"']/g, (char) => entities[char] ?? char);
}

/** JSON within a script element: without a sign that could end it. */
export function scriptJson(value: unknown): string {
  return JSON.stringify(value)
    .replaceAll("<", "\\u003c")
    .replaceAll("\u2028", "\\u2028")
    .replaceAll("\u2029", "\\u2029");
}

/** `cells`: plain texts. */
export function htmlTable(headings: readonly string[], rows: readonly (readonly string[])[]): string {
  const head = headings.map((text) => `<th scope="col">${escaped(text)}</th>`).join("");
  const body = rows.map((cells) => `<tr>${cells.map((text) => `<td>${escaped(text)}</td>`).join("")}</tr>`).join("\n");
  return `<div class="table"><table><thead><tr>${head}</tr></thead><tbody>\n${body}\n</tbody></table></div>`;
}

export function htmlList(items: readonly string[]): string {
  return items.length === 0 ? "" : `<ul>${items.map((text) => `<li>${escaped(text)}</li>`).join("")}</ul>`;
}
