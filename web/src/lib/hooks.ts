import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { isAbort } from "../api/errors";
import { streamNumber } from "../state/live";

export type Loaded<T> = {
  value: T | null;
  error: unknown;
  isLoading: boolean;
  reload: () => void;
};

/**
 * Loads what `key` names: when that or `version` changes, after `reload()`, and after the daemon came back. Keeps the
 * last value while a newer one of the same key is on its way, so that what a person looks at or stands on stays.
 */
export function useLoaded<T>(
  key: string,
  load: (signal: AbortSignal) => Promise<T>,
  version: unknown = null,
): Loaded<T> {
  const [held, setHeld] = useState<{ key: string; value: T | null; error: unknown; isLoading: boolean }>({
    key,
    value: null,
    error: null,
    isLoading: true,
  });
  const [turn, setTurn] = useState(0);
  const loader = useRef(load);
  loader.current = load;
  const stream = streamNumber.value;

  useEffect(() => {
    const abort = new AbortController();
    setHeld((old) => ({ key, value: old.key === key ? old.value : null, error: null, isLoading: true }));
    loader.current(abort.signal).then(
      (value) => {
        if (!abort.signal.aborted) setHeld({ key, value, error: null, isLoading: false });
      },
      (error: unknown) => {
        if (!abort.signal.aborted && !isAbort(error)) setHeld((old) => ({ ...old, key, error, isLoading: false }));
      },
    );
    return () => abort.abort();
  }, [key, version, turn, stream]);

  const reload = useCallback(() => setTurn((old) => old + 1), []);
  return { value: held.key === key ? held.value : null, error: held.error, isLoading: held.isLoading, reload };
}

/** Runs an effect for each listener-like subscription and undoes it. */
export function useSubscription(subscribe: () => () => void, key: string): void {
  const current = useRef(subscribe);
  current.current = subscribe;
  useEffect(() => current.current(), [key]);
}

/** The title of the browser's tab. */
export function useTitle(title: string): void {
  useEffect(() => {
    document.title = `${title} · Warren`;
  }, [title]);
}

export function useMedia(query: string): boolean {
  const [matches, setMatches] = useState(() => matchMedia(query).matches);
  useEffect(() => {
    const list = matchMedia(query);
    const change = () => setMatches(list.matches);
    change();
    list.addEventListener("change", change);
    return () => list.removeEventListener("change", change);
  }, [query]);
  return matches;
}

export const PHONE = "(max-width: 760px)";
export const NARROW = "(max-width: 1000px)";
export const LARGE = "(min-width: 1600px)";
