/** The words of a command as a shell splits them: quotes group, a backslash takes the next character literally. */
export function commandWords(text: string): readonly string[] {
  const words: string[] = [];
  for (const [word] of text.matchAll(/(?:\\.|"(?:\\.|[^"\\])*"|'[^']*'|[^\s"'\\])+/g))
    words.push(
      word.replaceAll(
        /\\(.)|"((?:\\.|[^"\\])*)"|'([^']*)'/g,
        (_, escaped?: string, double?: string, single?: string) =>
          escaped ?? double?.replaceAll(/\\(.)/g, "$1") ?? single ?? "",
      ),
    );
  return words;
}
