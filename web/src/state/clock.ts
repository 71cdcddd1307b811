import { signal } from "@preact/signals";

/** The time now, once a second; ages and times left follow it. */
export const now = signal(Date.now());

setInterval(() => {
  if (!document.hidden) now.value = Date.now();
}, 1000);
