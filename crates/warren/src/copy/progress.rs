//! A bar on a terminal, once a copy turns out to be large.

use std::{
    io::{self, IsTerminal as _},
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use indicatif::{ProgressBar, ProgressStyle};

/// Smaller copies are over before one has read the bar.
const SHOW_ABOVE_BYTES: u64 = 8 * 1024 * 1024;

#[derive(Debug, Clone)]
pub(crate) struct Progress {
    shared: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    is_wanted: bool,
    bar: Option<ProgressBar>,
    done: u64,
    total: Option<u64>,
}

impl Progress {
    /// Shows nothing where stderr is no terminal, whatever is wanted.
    pub(crate) fn new(is_wanted: bool) -> Self {
        let is_wanted = is_wanted && io::stderr().is_terminal();
        Self { shared: Arc::new(Mutex::new(State { is_wanted, bar: None, done: 0, total: None })) }
    }

    pub(crate) fn expect(&self, total: u64) {
        self.state().total = Some(total);
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, n: usize) {
        let mut state = self.state();
        state.done += n as u64;
        if !state.is_wanted {
            return;
        }
        if state.bar.is_none() && state.done > SHOW_ABOVE_BYTES {
            state.bar = Some(bar(state.total));
        }
        if let Some(bar) = &state.bar {
            bar.set_position(state.done);
        }
    }

    /// Counts what passes.
    pub(crate) fn count<S: Stream<Item = io::Result<Bytes>> + Send>(
        &self,
        bytes: S,
    ) -> impl Stream<Item = io::Result<Bytes>> + Send + use<S> {
        let progress = self.clone();
        bytes.inspect(move |piece| {
            if let Ok(piece) = piece {
                progress.add(piece.len());
            }
        })
    }

    pub(super) fn n_bytes(&self) -> u64 {
        self.state().done
    }

    pub(crate) fn finish(&self) {
        if let Some(bar) = self.state().bar.take() {
            bar.finish_and_clear();
        }
    }
}

fn bar(total: Option<u64>) -> ProgressBar {
    let (bar, template) = match total {
        Some(total) => (ProgressBar::new(total), "{wide_bar} {bytes}/{total_bytes}  {bytes_per_sec}  {eta}"),
        None => (ProgressBar::new_spinner(), "{spinner} {bytes}  {bytes_per_sec}  {elapsed}"),
    };
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_our_template_is_wrong) => bar,
    }
}
