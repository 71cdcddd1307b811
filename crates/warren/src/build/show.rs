//! Shows the steps of a build: the instruction, its output, and whether its layer was cached.

use std::{io::Write as _, time::Instant};

use frontends::rest::v1::BuildEvent;

use crate::{output, pulls};

/// Shows output as it comes; grey on a terminal.
#[derive(Debug)]
pub(crate) struct Show {
    /// None if nothing is shown; else whether it goes to a terminal.
    terminal: Option<bool>,
    began: Instant,
    /// The last piece of output did not end with a newline.
    is_open: bool,
    /// Present while an image is pulled.
    pull: Option<pulls::Display>,
}

impl Show {
    pub(crate) fn new(terminal: Option<bool>) -> Self {
        Self { terminal, began: Instant::now(), is_open: false, pull: None }
    }

    pub(crate) fn event(&mut self, event: &BuildEvent) {
        let Some(is_terminal) = self.terminal else { return };
        let (bold, grey, plain) = if is_terminal { ("\x1b[1m", "\x1b[90m", "\x1b[0m") } else { ("", "", "") };
        if !matches!(event, BuildEvent::Output { .. }) {
            self.end();
        }
        if !matches!(event, BuildEvent::Pulling { .. }) {
            self.pull = None;
        }
        match event {
            BuildEvent::Step { number, total, stage, text, .. } => {
                self.began = Instant::now();
                let stage = stage.as_ref().map(|stage| format!(" {stage}")).unwrap_or_default();
                put(&format!("{bold}[{number}/{total}{stage}]{plain} {}\n", printable(text)));
            }
            BuildEvent::Cached { .. } => put(" => cached\n"),
            BuildEvent::Layer { bytes, .. } => {
                let (seconds, size) = (self.began.elapsed().as_secs_f32(), output::bytes(*bytes));
                put(&format!(" => {seconds:.1} s, a layer of {size}\n"));
            }
            BuildEvent::Output { text, .. } => {
                self.is_open = !text.ends_with('\n');
                put(&format!("{grey}{}{plain}", printable(text)));
            }
            BuildEvent::Pull { reference } => {
                put(&format!(" => pulling {}\n", printable(reference)));
                self.pull = Some(pulls::Display::new(pulls::Show::People));
            }
            BuildEvent::Pulling { event } => {
                if let Some(pull) = &mut self.pull {
                    pull.take(event);
                }
            }
            BuildEvent::Warning { message } => put(&format!("warning: {}\n", printable(message))),
            BuildEvent::Done { .. } => {}
        }
    }

    /// Ends a line that was left open.
    pub(crate) fn end(&mut self) {
        if std::mem::take(&mut self.is_open) {
            put("\n");
        }
    }
}

/// Escapes control characters: a program in a sandbox must not control the terminal.
fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() && !matches!(c, '\n' | '\t' | '\r') { '\u{fffd}' } else { c })
        .collect()
}

fn put(text: &str) {
    // A closed terminal does not end the build.
    std::io::stderr().write_all(text.as_bytes()).ok();
}
