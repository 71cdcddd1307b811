/** Lifetimes to choose from, in milliseconds; the empty one has no end. */
export const LIFETIMES = [
  { value: "", label: "no end" },
  { value: "600000", label: "10 minutes" },
  { value: "3600000", label: "1 hour" },
  { value: "28800000", label: "8 hours" },
  { value: "86400000", label: "1 day" },
  { value: "604800000", label: "1 week" },
  { value: "2592000000", label: "30 days" },
];
