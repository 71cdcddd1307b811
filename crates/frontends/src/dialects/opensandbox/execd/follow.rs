//! A command or a piece of code, followed to its end as events.
//!
//! A client that goes away stops nothing, and its command's output stays in the ledger.

use std::time::{Duration, Instant};

use axum::{
    body::Body,
    http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use engine::{
    Engine, Entry, EntryBody, ExecView, MimeBundle, OutputStream, Principal, Rich, RichReader, Run, RunEnd,
    RunOptions,
};
use futures_util::stream;
use sandbox::{Error, ErrorKind, ExecOutcome, Result, Thing};
use serde_json::{Map, Value};

use super::{
    events::{Frames, MEDIA_TYPE},
    lines::Lines,
};
use crate::denials;

/// Tells proxies such as nginx to pass on each piece at once.
const NOT_HELD_BACK: HeaderName = HeaderName::from_static("x-accel-buffering");
/// The time between two signs of life on a silent stream.
const PING_EVERY: Duration = Duration::from_secs(3);

/// The kind of work that is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Command,
    /// Code, and which run of its context this is.
    Code {
        count: u64,
    },
}

struct Following {
    engine: Engine,
    who: Principal,
    exec: ExecView,
    run: Run,
    frames: Frames,
    lines: Lines,
    rich: RichReader,
    /// The code ended with an exception, which was told.
    has_error: bool,
    began: Instant,
}

/// Answers with the events of an exec, from its first to its end.
pub(super) async fn follow(
    engine: &Engine,
    who: &Principal,
    exec: &ExecView,
    kind: Kind,
) -> Result<Response> {
    let run = engine.run_to_end(who, exec, RunOptions::default()).await?;
    let mut frames = Frames::default();
    frames.init(exec.id.as_str());
    let lines = match kind {
        Kind::Command => Lines::default(),
        Kind::Code { count } => {
            frames.count(count);
            Lines::with_ends()
        }
    };
    let following = Following {
        engine: engine.clone(),
        who: who.clone(),
        exec: exec.clone(),
        run,
        frames,
        lines,
        rich: RichReader::default(),
        has_error: false,
        began: Instant::now(),
    };
    let pieces = stream::unfold(Some(following), |following| async { following?.step().await });
    Ok(answer(Body::from_stream(pieces)))
}

/// Answers that an exec was started, or fails if it was not.
pub(super) fn started(exec: &ExecView) -> Result<Response> {
    if let Some(outcome @ ExecOutcome::NotStarted { .. }) = &exec.outcome {
        return Err(Error::new(ErrorKind::WrongState, format!("the command {outcome}"))
            .about(Thing::Exec, exec.id.as_str()));
    }
    let mut frames = Frames::default();
    frames.init(exec.id.as_str());
    frames.complete(0);
    Ok(answer(Body::from(frames.take())))
}

pub(super) fn answer(body: Body) -> Response {
    let headers = [(CONTENT_TYPE, MEDIA_TYPE), (CACHE_CONTROL, "no-cache"), (NOT_HELD_BACK, "no")];
    (headers, body).into_response()
}

impl Following {
    /// The next piece, and who goes on.
    async fn step(mut self) -> Option<(Result<Bytes>, Option<Self>)> {
        while self.frames.is_empty() {
            tokio::select! {
                entry = self.run.next() => match entry {
                    Some(entry) => self.take(entry),
                    None => return Some((Ok(self.finish().await), None)),
                },
                () = tokio::time::sleep(PING_EVERY) => self.frames.ping(),
            }
        }
        let piece = self.frames.take();
        Some((Ok(piece), Some(self)))
    }

    fn take(&mut self, entry: Result<Entry>) {
        match entry {
            Ok(Entry { body: EntryBody::Stdout(bytes), .. }) => self.print(OutputStream::Stdout, &bytes),
            Ok(Entry { body: EntryBody::Stderr(bytes), .. }) => self.print(OutputStream::Stderr, &bytes),
            Ok(Entry { body: EntryBody::Rich(bytes), .. }) => {
                for shown in self.rich.push(&bytes) {
                    self.show(shown);
                }
            }
            Ok(Entry { body: EntryBody::Trimmed { .. }, .. }) => {
                self.rich.gap();
                self.frames.line("stderr", "[… output was dropped: there was too much of it …]");
            }
            Ok(_) => {}
            Err(error) => self.frames.line("stderr", &format!("[… {error} …]")),
        }
    }

    fn print(&mut self, stream: OutputStream, bytes: &[u8]) {
        let frames = &mut self.frames;
        self.lines.push(stream, bytes, |text| frames.line(stream.as_str(), text));
    }

    /// Sends the unfinished lines, so that output printed earlier comes first.
    fn flush(&mut self) {
        let frames = &mut self.frames;
        self.lines.finish(|stream, text| frames.line(stream.as_str(), text));
    }

    fn show(&mut self, shown: Rich) {
        self.flush();
        match shown {
            Rich::Result { data } | Rich::Display { data } => self.frames.result(results(&data)),
            Rich::Error { name, value, traceback } => {
                self.has_error = true;
                let lines: Vec<_> = traceback.lines().map(str::to_owned).collect();
                self.frames.error(&name, &value, &lines);
            }
            Rich::Warning { message } => self.frames.line("stderr", &message),
            Rich::Files { .. } | Rich::State { .. } => {}
        }
    }

    async fn finish(mut self) -> Bytes {
        self.flush();
        let took_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let mut frames = self.frames;
        for sentence in denials::told(&self.engine, &self.who, &self.exec).await {
            frames.line("stderr", &sentence);
        }
        match self.run.end().await {
            Ok(RunEnd::Ended(outcome)) if outcome.is_success() => frames.complete(took_ms),
            Ok(RunEnd::Ended(_)) if self.has_error => {}
            Ok(RunEnd::Ended(outcome)) => {
                if !matches!(outcome, ExecOutcome::Exited { memory_limit_hit: false, .. }) {
                    frames.line("stderr", &outcome.to_string());
                }
                frames.failed(outcome.exit_code(), &outcome.to_string());
            }
            Ok(RunEnd::Cancelled(_) | RunEnd::Overdue | RunEnd::Left) => {
                frames.failed(u8::MAX, "nobody knows how it ended");
            }
            Err(error) => frames.failed(u8::MAX, &error.to_string()),
        }
        frames.take()
    }
}

/// All forms of a result; the plain one has a name of its own.
fn results(data: &MimeBundle) -> Value {
    let named = data.iter().map(|(mime, value)| {
        let name = if mime == "text/plain" { "text" } else { mime.as_str() };
        (name.to_owned(), value.clone())
    });
    Value::Object(named.collect::<Map<_, _>>())
}
