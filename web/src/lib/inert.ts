const TAG = /<[a-z][^>]*>/gi;
const HANDLER = /([\s"'/])on(?=[a-z]+\s*=)/gi;

/**
 * Parses HTML into elements that belong to no page: nothing in them runs, loads or is styled. Handlers would not run
 * either, but browsers report each of them as a breach of the content policy; under another name they are plain
 * attributes.
 */
export function inert(html: string): DocumentFragment {
  const template = document.createElement("template");
  template.innerHTML = html.replace(TAG, (tag) => tag.replace(HANDLER, "$1data-on"));
  return template.content;
}
