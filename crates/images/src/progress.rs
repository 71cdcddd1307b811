//! Progress of a pull.

use std::{fmt, sync::Arc, time::Duration};

use crate::digest::Digest;

/// Called from any thread, often, and must not block.
#[derive(Clone)]
pub struct Progress(Arc<dyn Fn(Event) + Send + Sync>);

impl Progress {
    pub fn new(on_event: impl Fn(Event) + Send + Sync + 'static) -> Self {
        Self(Arc::new(on_event))
    }

    /// Tells nobody.
    pub fn none() -> Self {
        Self::new(|_| {})
    }

    /// For whoever passes on what another one tells.
    pub fn tell(&self, event: Event) {
        (self.0)(event);
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Progress(…)")
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The parts of the image are known: its manifest, and its layers with their sizes as they are downloaded.
    Resolved {
        manifest: Digest,
        layers: Vec<(Digest, u64)>,
    },
    Layer {
        blob: Digest,
        state: LayerState,
    },
    /// The registry is asked again after a wait.
    Retrying {
        wait: Duration,
        why: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayerState {
    /// Here already; nothing is downloaded.
    Present,
    /// Another pull is getting it, or others are before it.
    Waiting,
    Downloading {
        bytes: u64,
        total: u64,
    },
    Unpacking,
    Done,
}
