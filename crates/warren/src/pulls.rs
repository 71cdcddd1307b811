//! Shows a pull: a bar for each layer on a terminal, lines elsewhere, events for programs.

use std::{
    collections::BTreeMap,
    fmt,
    io::{self, IsTerminal as _, Write as _},
    time::Duration,
};

use frontends::rest::v1::{ErrorBody, PullEvent, PullState};
use futures_util::{Stream, TryStreamExt as _};
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use sandbox::{Error, ErrorKind, Next, Thing};

use crate::{
    error::{CommandError, CommandResult},
    output,
};

/// Digits of a digest that are shown.
const SHORT_DIGEST: usize = 12;
/// Bars that fit on a screen; further layers are only counted.
const MAX_BARS: usize = 40;
const TICK: Duration = Duration::from_millis(120);

/// How to show progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Show {
    /// Bars or lines on stderr.
    People,
    /// Every event on stdout.
    Programs,
    Nothing,
}

impl Show {
    /// For people, unless asked to be quiet.
    pub(crate) fn unless(is_silent: bool) -> Self {
        if is_silent { Self::Nothing } else { Self::People }
    }
}

/// Reads the events of a pull to the end, and shows them.
pub(crate) async fn follow(
    mut lines: impl Stream<Item = io::Result<String>> + Unpin,
    show: Show,
) -> CommandResult<PullEvent> {
    let mut display = Display::new(show);
    while let Some(line) = lines.try_next().await? {
        let event = read(&line)?;
        if show == Show::Programs {
            output::line(&line)?;
        }
        display.take(&event);
        if matches!(event, PullEvent::Done { .. } | PullEvent::Created { .. }) {
            return Ok(event);
        }
    }
    Err(Error::new(ErrorKind::Unavailable, "the daemon stopped before the pull finished")
        .with_hint("Pull again; the download resumes where it stopped.")
        .into())
}

fn read(line: &str) -> CommandResult<PullEvent> {
    if let Ok(ErrorBody { error: detail }) = serde_json::from_str(line) {
        return Err(CommandError::from_daemon(detail).map(not_in_registry));
    }
    serde_json::from_str(line).map_err(|error| {
        Error::new(ErrorKind::Internal, "the daemon sent an answer that this command does not understand")
            .with_source(error)
            .with_hint("The daemon may have another version; `warren version` shows both.")
            .into()
    })
}

/// For an image that its registry lacks, the usual hint, to pull it, would not help.
fn not_in_registry(error: Error) -> Error {
    match error.next() {
        Some(Next::List(Thing::Image)) => {
            error.with_hint("Check the name and the tag: the registry has no such image.")
        }
        _ => error,
    }
}

/// The first hex digits of a digest.
pub(crate) fn short(digest: &str) -> String {
    digest.strip_prefix("sha256:").unwrap_or(digest).chars().take(SHORT_DIGEST).collect()
}

pub(crate) enum Display {
    Bars(Bars),
    Lines(Lines),
    Nothing,
}

impl fmt::Debug for Display {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bars(_) => "Bars",
            Self::Lines(_) => "Lines",
            Self::Nothing => "Nothing",
        })
    }
}

impl Display {
    pub(crate) fn new(show: Show) -> Self {
        match show {
            Show::People if io::stderr().is_terminal() => Self::Bars(Bars::new()),
            Show::People => Self::Lines(Lines::default()),
            Show::Programs | Show::Nothing => Self::Nothing,
        }
    }

    pub(crate) fn take(&mut self, event: &PullEvent) {
        match self {
            Self::Bars(bars) => bars.take(event),
            Self::Lines(lines) => lines.take(event),
            Self::Nothing => {}
        }
    }
}

/// One line for each step of each layer.
#[derive(Default)]
pub(crate) struct Lines {
    states: BTreeMap<String, PullState>,
    why: Why,
}

/// Why a pull is tried again. The same reason is said once.
#[derive(Default)]
struct Why(Option<String>);

impl Why {
    fn is_new(&mut self, why: &str) -> bool {
        self.0.replace(why.to_owned()).as_deref() != Some(why)
    }
}

impl Lines {
    fn take(&mut self, event: &PullEvent) {
        match event {
            PullEvent::Resolved { digest, layers } => {
                let bytes = layers.iter().map(|layer| layer.bytes).sum();
                say(&format!("{}: {} layers, {}", short(digest), layers.len(), output::bytes(bytes)));
            }
            PullEvent::Layer { digest, state, .. } => {
                if self.states.insert(digest.clone(), *state) != Some(*state) {
                    say(&format!("{}: {}", short(digest), words(*state)));
                }
            }
            PullEvent::Retrying { why, wait_ms } => {
                if self.why.is_new(why) {
                    say(&retrying(why, *wait_ms));
                }
            }
            PullEvent::Done { .. } | PullEvent::Created { .. } => {}
        }
    }
}

fn say(text: &str) {
    // Progress that cannot be printed is no failure.
    writeln!(io::stderr().lock(), "{}", output::printable(text)).ok();
}

fn words(state: PullState) -> &'static str {
    match state {
        PullState::Present => "already exists",
        PullState::Waiting => "waiting",
        PullState::Downloading => "downloading",
        PullState::Unpacking => "unpacking",
        PullState::Done => "done",
    }
}

fn retrying(why: &str, wait_ms: u64) -> String {
    let seconds = Duration::from_millis(wait_ms).as_secs_f32();
    output::printable(&format!("{why}; retrying in {seconds} s"))
}

pub(crate) struct Bars {
    all: MultiProgress,
    layers: BTreeMap<String, ProgressBar>,
    /// Shown until the layers of the image are known.
    waiting: ProgressBar,
    why: Why,
}

impl Bars {
    fn new() -> Self {
        let all = MultiProgress::with_draw_target(ProgressDrawTarget::stderr());
        let waiting = all.add(ProgressBar::new_spinner().with_message("contacting the registry"));
        waiting.enable_steady_tick(TICK);
        Self { all, layers: BTreeMap::new(), waiting, why: Why::default() }
    }

    fn take(&mut self, event: &PullEvent) {
        match event {
            PullEvent::Resolved { layers, .. } => {
                self.waiting.finish_and_clear();
                for layer in layers.iter().take(MAX_BARS) {
                    let all = &self.all;
                    self.layers.entry(layer.digest.clone()).or_insert_with(|| {
                        let bar = all.add(ProgressBar::new(layer.bytes).with_style(style()));
                        bar.set_prefix(short(&layer.digest));
                        bar.set_message(words(PullState::Waiting));
                        bar.tick();
                        bar
                    });
                }
            }
            PullEvent::Layer { digest, state, bytes, .. } => {
                let Some(bar) = self.layers.get(digest) else { return };
                bar.set_message(words(*state));
                match state {
                    PullState::Waiting => {}
                    PullState::Downloading => bar.set_position(bytes.unwrap_or_default()),
                    PullState::Unpacking => bar.set_position(bar.length().unwrap_or_default()),
                    PullState::Present | PullState::Done => {
                        bar.set_position(bar.length().unwrap_or_default());
                        bar.abandon();
                    }
                }
            }
            PullEvent::Retrying { why, .. } if !self.why.is_new(why) => {}
            PullEvent::Retrying { why, wait_ms } => {
                self.all.println(retrying(why, *wait_ms)).ok();
            }
            PullEvent::Done { .. } | PullEvent::Created { .. } => self.waiting.finish_and_clear(),
        }
    }
}

impl Drop for Bars {
    fn drop(&mut self) {
        self.waiting.finish_and_clear();
        for bar in self.layers.values().filter(|bar| !bar.is_finished()) {
            bar.abandon();
        }
    }
}

fn style() -> ProgressStyle {
    let template = "{prefix} {bar:30} {bytes:>10}/{total_bytes:10} {msg}";
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_our_template_is_wrong| ProgressStyle::default_bar())
}

#[cfg(test)]
mod tests {
    use futures_util::stream;

    use super::*;

    async fn followed(lines: &[&str]) -> CommandResult<PullEvent> {
        let lines: Vec<_> = lines.iter().map(|line| Ok((*line).to_owned())).collect();
        follow(stream::iter(lines), Show::Nothing).await
    }

    #[test]
    fn the_same_reason_to_try_again_is_said_once() {
        let mut why = Why::default();
        assert_eq!(["no answer", "no answer", "503"].map(|reason| why.is_new(reason)), [true, false, true]);
    }

    #[tokio::test]
    async fn a_pull_ends_with_its_last_word_or_with_why_not() {
        let resolved =
            r#"{"type":"resolved","digest":"sha256:aa","layers":[{"digest":"sha256:bb","bytes":3}]}"#;
        let layer = r#"{"type":"layer","digest":"sha256:bb","state":"downloading","bytes":1,"total":3}"#;
        let error = r#"{"error":{"kind":"denied","message":"no","hint":"Log in.","requestId":"r"}}"#;
        assert_eq!(followed(&[resolved, layer]).await.unwrap_err().kind(), Some(ErrorKind::Unavailable));
        assert_eq!(followed(&[resolved, error]).await.unwrap_err().kind(), Some(ErrorKind::Denied));
        assert_eq!(followed(&["{}"]).await.unwrap_err().kind(), Some(ErrorKind::Internal));
    }
}
