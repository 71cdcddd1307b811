//! How far a pull is. What it tells comes often and from any thread; who listens reads when they can. So the last word
//! about each layer is kept, and no queue.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use engine::{Digest, LayerState, Progress, PullEvent};
use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

/// Longest reason for asking again that is told.
const MAX_WHY_CHARS: usize = 300;

/// A pull that somebody listens to. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pulling {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    news: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Fresh until it is told.
    resolved: Option<Digest>,
    layers: Vec<Layer>,
    retrying: Option<(Duration, String)>,
}

#[derive(Debug)]
struct Layer {
    blob: Digest,
    bytes: u64,
    state: LayerState,
    is_fresh: bool,
}

/// The progress of a whole pull, in numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    pub(crate) n_layers: usize,
    pub(crate) n_done: usize,
    pub(crate) bytes: u64,
    pub(crate) total: u64,
    /// The bytes of layers that are all there, as they were downloaded.
    pub(crate) done_bytes: u64,
}

impl Pulling {
    /// To be handed to the pull.
    pub(crate) fn progress(&self) -> Progress {
        let pulling = self.clone();
        Progress::new(move |event| {
            pulling.state().take(event);
            pulling.shared.news.notify_one();
        })
    }

    /// Returns the events not told yet. Waits until there are some, and in any case until `not_before`, so that they
    /// are not told too often. For one listener.
    pub(crate) async fn news(&self, not_before: Instant) -> Vec<PullEvent> {
        sleep_until(not_before).await;
        loop {
            let events = self.fresh();
            if !events.is_empty() {
                return events;
            }
            self.shared.news.notified().await;
        }
    }

    /// The same without waiting.
    pub(crate) fn fresh(&self) -> Vec<PullEvent> {
        self.state().tell()
    }

    pub(crate) fn sum(&self) -> Sum {
        let state = self.state();
        let mut sum = Sum { n_layers: state.layers.len(), ..Sum::default() };
        for layer in &state.layers {
            sum.total += layer.bytes;
            let is_done = matches!(layer.state, LayerState::Present | LayerState::Done);
            sum.n_done += usize::from(is_done);
            sum.done_bytes += if is_done { layer.bytes } else { 0 };
            sum.bytes += match layer.state {
                LayerState::Waiting => 0,
                LayerState::Downloading { bytes, .. } => bytes.min(layer.bytes),
                LayerState::Present | LayerState::Unpacking | LayerState::Done => layer.bytes,
            };
        }
        sum
    }

    /// Whether layers are on their way.
    pub(crate) fn is_underway(&self) -> bool {
        let sum = self.sum();
        sum.n_done < sum.n_layers
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn take(&mut self, event: PullEvent) {
        match event {
            PullEvent::Resolved { manifest, layers } => {
                self.resolved = Some(manifest);
                let layer =
                    |(blob, bytes)| Layer { blob, bytes, state: LayerState::Waiting, is_fresh: false };
                self.layers = layers.into_iter().map(layer).collect();
            }
            PullEvent::Layer { blob, state } => {
                for layer in self.layers.iter_mut().filter(|layer| layer.blob == blob) {
                    layer.is_fresh |= layer.state != state;
                    layer.state = state;
                }
            }
            PullEvent::Retrying { wait, why } => {
                self.retrying = Some((wait, why.chars().take(MAX_WHY_CHARS).collect()));
            }
        }
    }

    fn tell(&mut self) -> Vec<PullEvent> {
        let mut events = Vec::new();
        if let Some(manifest) = self.resolved.take() {
            let layers = self.layers.iter().map(|layer| (layer.blob.clone(), layer.bytes)).collect();
            events.push(PullEvent::Resolved { manifest, layers });
        }
        let mut told = std::collections::HashSet::new();
        for layer in &mut self.layers {
            if std::mem::take(&mut layer.is_fresh) && told.insert(layer.blob.clone()) {
                events.push(PullEvent::Layer { blob: layer.blob.clone(), state: layer.state });
            }
        }
        if let Some((wait, why)) = self.retrying.take() {
            events.push(PullEvent::Retrying { wait, why });
        }
        events
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    fn digest(digit: char) -> Digest {
        format!("sha256:{}", digit.to_string().repeat(64)).parse().unwrap()
    }

    #[tokio::test]
    async fn the_last_word_about_each_layer_is_told_once() {
        let pulling = Pulling::default();
        let tell = |event| pulling.state().take(event);
        tell(PullEvent::Resolved {
            manifest: digest('0'),
            layers: vec![(digest('a'), 100), (digest('b'), 50), (digest('a'), 100)],
        });
        for bytes in [10, 20, 60] {
            let state_now = LayerState::Downloading { bytes, total: 100 };
            tell(PullEvent::Layer { blob: digest('a'), state: state_now });
        }
        tell(PullEvent::Layer { blob: digest('b'), state: LayerState::Done });
        tell(PullEvent::Layer { blob: digest('f'), state: LayerState::Done });
        tell(PullEvent::Retrying { wait: Duration::from_secs(1), why: "busy".to_owned() });
        let events = pulling.news(Instant::now()).await;
        assert!(matches!(&events[0], PullEvent::Resolved { layers, .. } if layers.len() == 3), "{events:?}");
        let downloading = LayerState::Downloading { bytes: 60, total: 100 };
        assert_eq!(events[1], PullEvent::Layer { blob: digest('a'), state: downloading });
        assert_eq!(events[2], PullEvent::Layer { blob: digest('b'), state: LayerState::Done });
        assert!(matches!(&events[3], PullEvent::Retrying { why, .. } if why == "busy") && events.len() == 4);
        assert!(pulling.fresh().is_empty());
        let sum = pulling.sum();
        assert_eq!((sum.n_layers, sum.n_done, sum.bytes, sum.total, sum.done_bytes), (3, 1, 170, 250, 50));
    }
}
