/**
 * Separates thinking that a template left in the content (`think:false` is ignored by some models, and some emit a bare
 * closer): everything up to the last `</think>` is thinking, as is an unclosed `<think>` at the start.
 */
export function splitThinking(
  content: string,
  thinking: string,
): { readonly content: string; readonly thinking: string } {
  const closer = content.lastIndexOf('</think>');
  if (closer !== -1) {
    const inner = content.slice(0, closer).replaceAll(/<\/?think>/g, '');
    return {
      content: content.slice(closer + '</think>'.length).trimStart(),
      thinking: joined(thinking, inner.trim()),
    };
  }
  const start = content.trimStart();
  if (start.startsWith('<think>')) {
    return { content: '', thinking: joined(thinking, start.slice('<think>'.length).trim()) };
  }
  return { content, thinking };
}

function joined(a: string, b: string): string {
  return a === '' ? b : b === '' ? a : `${a}\n${b}`;
}
