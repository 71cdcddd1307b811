// Receives the interrupt. Node's own watch for it stops a loop that never yields, and it is kept running for good:
// started and stopped with each cell, as `breakOnSigint` alone would do, it leaves moments in which an interrupt is
// lost or deadly.
'use strict';
(function signals(driver) {
  const { Reflect, process } = driver;
  const { apply } = Reflect;
  const { listeners, rawListeners, on, removeListener, removeAllListeners } = process;
  const { setInterval, clearInterval } = globalThis;

  const LOOK_EVERY_MS = 20;
  const NAME = 'SIGINT';

  function findWatch() {
    try {
      const { startSigintWatchdog, stopSigintWatchdog, watchdogHasPendingSigint } = process.binding('contextify');
      watchdogHasPendingSigint();
      return { __proto__: null, start: startSigintWatchdog, stop: stopSigintWatchdog, has: watchdogHasPendingSigint };
    } catch {
      return undefined;
    }
  }

  const watch = findWatch();
  let isHeld = false;
  let onInterrupt = () => {};
  const listener = () => onInterrupt();

  // Twice, so that handling an interrupt, which is a stop and a start, never ends it.
  function hold() {
    watch.start();
    watch.start();
    isHeld = true;
  }

  // Node sets the disposition of a signal once, when its first listener is added.
  function release() {
    const all = apply(rawListeners, process, [NAME]);
    apply(removeAllListeners, process, [NAME]);
    isHeld = false;
    watch.stop();
    watch.stop();
    for (let i = 0; i < all.length; i++) apply(on, process, [NAME, all[i]]);
  }

  function isAmong(event, wanted) {
    const present = apply(listeners, process, [event]);
    for (let i = 0; i < present.length; i++) if (present[i] === wanted) return true;
    return false;
  }

  function countOthers() {
    const present = apply(listeners, process, [NAME]);
    let n = 0;
    for (let i = 0; i < present.length; i++) if (present[i] !== listener) n++;
    return n;
  }

  function listen() {
    if (!isAmong(NAME, listener)) apply(on, process, [NAME, listener]);
  }

  // A cell's own listener takes the signal from the watch, and nobody gets it when the cell stops listening.
  process.on('newListener', (event, added) => {
    if (event === NAME && isHeld && added !== listener) listen();
  });
  process.on('removeListener', (event, removed) => {
    if (event !== NAME || !isHeld || removed === listener || countOthers() > 0) return;
    apply(removeListener, process, [NAME, listener]);
    watch.stop();
    watch.stop();
    hold();
  });

  // Some of these are Node's own: they make a signal's listener receive it.
  const kept = ['newListener', 'removeListener'].flatMap((event) =>
    apply(listeners, process, [event]).map((each) => ({ __proto__: null, event, each })),
  );

  function keepListeners() {
    let isComplete = true;
    for (let i = 0; i < kept.length; i++) isComplete = isAmong(kept[i].event, kept[i].each) && isComplete;
    if (isComplete) return;
    for (let i = 0; i < kept.length; i++) {
      const { event, each } = kept[i];
      apply(removeListener, process, [event, each]);
      apply(on, process, [event, each]);
    }
    // Listeners added meanwhile receive nothing; and neither may the watch.
    if (isHeld) release();
  }

  // Before each cell: an interrupt between cells does not count.
  function prepare() {
    keepListeners();
    if (!watch || countOthers() > 0) {
      if (isHeld) release();
      listen();
    } else if (isHeld) {
      watch.stop();
      watch.start();
    } else {
      apply(removeListener, process, [NAME, listener]);
      hold();
    }
  }

  // Calls `interrupt` once one comes while `isWaiting()`.
  function lookOut(isWaiting, interrupt) {
    onInterrupt = () => isWaiting() && interrupt();
    if (!isHeld) return;
    const look = () => {
      if (!isWaiting()) return clearInterval(timer);
      if (!isHeld || !watch.has()) return;
      clearInterval(timer);
      interrupt();
    };
    const timer = setInterval(look, LOOK_EVERY_MS);
    look();
  }

  if (watch) hold();
  else listen();
  return { prepare, lookOut };
});
