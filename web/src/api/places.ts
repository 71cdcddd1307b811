/**
 * Browsers open six connections to one host. The live stream has one, requests need one; these are for streams that
 * stay open: the output of running commands, and changes of a directory.
 */
const MAX_STREAMS = 4;

let open = 0;
const queue: (() => void)[] = [];

function leave(): void {
  const next = queue.shift();
  // The place goes on to whoever waited longest.
  if (next) next();
  else open -= 1;
}

export const hasPlace = () => open < MAX_STREAMS;

/** Waits for a place for one open stream; the returned function gives it back. */
export async function takePlace(signal: AbortSignal): Promise<() => void> {
  signal.throwIfAborted();
  if (hasPlace()) open += 1;
  else await turn(signal);
  return leave;
}

function turn(signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const go = () => {
      signal.removeEventListener("abort", stop);
      resolve();
    };
    const stop = () => {
      queue.splice(queue.indexOf(go), 1);
      reject(signal.reason as Error);
    };
    queue.push(go);
    signal.addEventListener("abort", stop, { once: true });
  });
}
