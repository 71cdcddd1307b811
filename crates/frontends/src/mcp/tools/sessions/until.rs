//! The events that a poll waits for.

use engine::OutputStream;

use super::page::{Shows, Step};
use crate::mcp::Failure;

/// Longest text that is looked for.
const MAX_TEXT_BYTES: usize = 256;

#[derive(Debug)]
pub(super) enum Until {
    /// The end of the command.
    Exit,
    /// Any output, or the end.
    Output,
    /// This text in one of the streams, or the end.
    Text(Search),
}

/// A text that is looked for in streams that come in pieces.
#[derive(Debug)]
pub(super) struct Search {
    text: Vec<u8>,
    /// The last bytes of stdout and of stderr, in which the text may begin.
    tails: [Vec<u8>; 2],
    is_found: bool,
}

impl Until {
    pub(super) fn new(text: &str) -> Result<Self, Failure> {
        match text {
            "exit" => Ok(Self::Exit),
            "output" => Ok(Self::Output),
            "" => Err(Failure::invalid("until is empty")
                .with_hint("Give exit, output, or a text that the command will print.")),
            text if text.len() > MAX_TEXT_BYTES => Err(Failure::invalid(format!(
                "until has {} bytes; the limit is {MAX_TEXT_BYTES}",
                text.len()
            ))
            .with_hint("Give a shorter part of what the command will print.")),
            text => {
                let text = text.as_bytes().to_vec();
                Ok(Self::Text(Search { text, tails: [Vec::new(), Vec::new()], is_found: false }))
            }
        }
    }

    /// Output that was read.
    pub(super) fn push(&mut self, stream: OutputStream, data: &[u8]) {
        if let Self::Text(search) = self {
            search.push(stream, data);
        }
    }

    /// Whether it has come, given everything that was read. A command that ended prints nothing more.
    pub(super) fn is_reached(&self, steps: &[Step]) -> bool {
        let has = |is_it: fn(&Shows) -> bool| steps.iter().any(|step| is_it(&step.shows));
        match self {
            Self::Exit => has(|shows| matches!(shows, Shows::Exit(_))),
            Self::Output => has(|shows| matches!(shows, Shows::Output(..))),
            Self::Text(search) => search.is_found,
        }
    }
}

impl Search {
    fn push(&mut self, stream: OutputStream, data: &[u8]) {
        if self.is_found {
            return;
        }
        let tail = &mut self.tails[usize::from(stream == OutputStream::Stderr)];
        tail.extend_from_slice(data);
        self.is_found = tail.windows(self.text.len()).any(|part| part == self.text);
        let n_surplus = tail.len().saturating_sub(self.text.len() - 1);
        tail.drain(..n_surplus);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str, pieces: &[(OutputStream, &str)]) -> bool {
        let mut until = Until::new(text).unwrap();
        for (stream, piece) in pieces {
            until.push(*stream, piece.as_bytes());
        }
        until.is_reached(&[])
    }

    #[test]
    fn a_text_is_found_across_pieces_of_one_stream() {
        use OutputStream::{Stderr, Stdout};
        assert!(found("ready", &[(Stdout, "rea"), (Stderr, "x"), (Stdout, "dy\n")]));
        assert!(found("a", &[(Stdout, "b"), (Stdout, "a")]));
        assert!(!found("ready", &[(Stdout, "rea"), (Stderr, "dy")]));
        assert!(!found("ready", &[(Stdout, "read"), (Stdout, "read")]));
    }

    #[test]
    fn what_cannot_be_waited_for_is_refused() {
        for text in [String::new(), "x".repeat(MAX_TEXT_BYTES + 1)] {
            let failure = Until::new(&text).unwrap_err();
            assert!(
                failure.error().kind() == sandbox::ErrorKind::InvalidRequest
                    && failure.error().next().is_some()
            );
        }
    }
}
