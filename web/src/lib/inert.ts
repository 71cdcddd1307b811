const TAG = /<[a-z][^>]*>/gi;
const REPORTED = /([\s"'/])(on(?=[a-z]+\s*=)|style(?=\s*=))/gi;

/**
 * Parses HTML into elements that belong to no page: nothing in them runs, loads or is styled. Handlers and styles would
 * do nothing either, but browsers report each of them as a breach of the content policy; under another name they are
 * plain attributes.
 */
export function inert(html: string): DocumentFragment {
  const template = document.createElement("template");
  template.innerHTML = html.replace(TAG, (tag) => tag.replace(REPORTED, "$1data-$2"));
  return template.content;
}
