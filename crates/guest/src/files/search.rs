//! `Glob` and `Grep`.

use std::{io, path::Path, time::Instant};

use globset::{GlobBuilder, GlobMatcher};
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkMatch};
use guest_protocol::{Failure, FailureKind, GrepMatch, Response};
use rustix::fs::FileType;

use super::{
    Answer, Cancel, absolute,
    entry::{kind_of, open_directory, open_readable, open_regular_at},
    failure,
    list::{LOOK_TIME, Room},
    named,
    walk::{Flow, Trouble, Visit, Walked, walk},
};

/// Most characters of an expression in a message.
const MAX_SHOWN_CHARS: usize = 200;
/// Most bytes of a matching line in an answer.
const MAX_LINE_BYTES: usize = 512;
/// Longest line that is searched; a file with a longer one is skipped.
const MAX_SEARCHED_LINE_BYTES: usize = 4 * 1024 * 1024;
/// Size of a compiled expression; a larger one is refused.
const MAX_EXPRESSION_BYTES: usize = 4 * 1024 * 1024;

fn invalid(message: impl std::fmt::Display) -> Failure {
    Failure::new(FailureKind::InvalidRequest, message.to_string())
}

/// The parser prints its complaint over several lines; only the last one is useful here.
fn not_an_expression(pattern: &str, complaint: &str) -> Failure {
    let why = complaint.rsplit_once("error: ").map_or(complaint, |(_, why)| why);
    let shown: String = pattern.chars().take(MAX_SHOWN_CHARS).collect();
    invalid(format!("{shown:?} is not a regular expression: {why}"))
}

fn matcher_of(pattern: &str) -> Answer<GlobMatcher> {
    let glob = GlobBuilder::new(pattern).literal_separator(true).build().map_err(invalid)?;
    Ok(glob.compile_matcher())
}

pub(crate) fn glob(root: &str, pattern: &str, limit: u32, cancel: &Cancel) -> Answer {
    glob_until(Instant::now() + LOOK_TIME, root, pattern, limit, cancel)
}

fn glob_until(end: Instant, root: &str, pattern: &str, limit: u32, cancel: &Cancel) -> Answer {
    let root = absolute(root)?;
    let matcher = matcher_of(pattern.strip_prefix("./").unwrap_or(pattern))?;
    let (mut paths, mut room) = (Vec::new(), Room::new(limit));
    let walked = walk(open_directory(&root)?, &root, Trouble::Skip, cancel, |item| {
        if Instant::now() >= end {
            return Ok(Flow::Stop);
        }
        if item.visit == Visit::Enter && matcher.is_match(item.relative) {
            let path = root.join(item.relative).to_string_lossy().into_owned();
            if !room.take(&[&path]) {
                return Ok(Flow::Stop);
            }
            paths.push(path);
        }
        Ok(Flow::Into)
    })?;
    Ok(Response::Paths { paths, truncated: walked == Walked::Partly })
}

/// A search, as in `Request::Grep`.
#[derive(Debug)]
pub(crate) struct Grep {
    pub(crate) root: String,
    pub(crate) pattern: String,
    pub(crate) include: Option<String>,
    pub(crate) ignore_case: bool,
    pub(crate) literal: bool,
    pub(crate) limit: u32,
}

pub(crate) fn grep(query: &Grep, cancel: &Cancel) -> Answer {
    grep_until(Instant::now() + LOOK_TIME, query, cancel)
}

fn grep_until(end: Instant, query: &Grep, cancel: &Cancel) -> Answer {
    let root = absolute(&query.root)?;
    let include = query.include.as_deref().map(matcher_of).transpose()?;
    let expression = RegexMatcherBuilder::new()
        .case_insensitive(query.ignore_case)
        .fixed_strings(query.literal)
        .line_terminator(Some(b'\n'))
        .size_limit(MAX_EXPRESSION_BYTES)
        .dfa_size_limit(MAX_EXPRESSION_BYTES)
        .build(&query.pattern)
        .map_err(|error| not_an_expression(&query.pattern, &error.to_string()))?;
    let mut search = Search {
        expression,
        searcher: SearcherBuilder::new()
            .line_number(true)
            .heap_limit(Some(MAX_SEARCHED_LINE_BYTES))
            .binary_detection(BinaryDetection::quit(0))
            .build(),
        matches: Vec::new(),
        room: Room::new(query.limit),
        is_full: false,
        left_out: false,
        end,
    };
    let stat = rustix::fs::stat(&root).map_err(|error| failure(named("search", &root), error))?;
    if kind_of(&stat) == FileType::Directory {
        search.tree(&root, include.as_ref(), cancel)?;
    } else {
        let (file, _) = open_readable(&root)?;
        search.file(&root, file, cancel);
    }
    cancel.check()?;
    Ok(Response::Matches { matches: search.matches, truncated: search.is_full || search.left_out })
}

struct Search {
    expression: RegexMatcher,
    searcher: Searcher,
    matches: Vec<GrepMatch>,
    room: Room,
    is_full: bool,
    left_out: bool,
    end: Instant,
}

impl Search {
    fn tree(&mut self, root: &Path, include: Option<&GlobMatcher>, cancel: &Cancel) -> Answer<()> {
        let walked = walk(open_directory(root)?, root, Trouble::Skip, cancel, |item| {
            let is_file = kind_of(item.stat) == FileType::RegularFile && item.visit == Visit::Enter;
            if is_file && include.is_none_or(|include| is_included(include, item.relative)) {
                // Unreadable files are skipped; a listing would show them.
                if let Ok((file, _)) = open_regular_at(item.parent, item.name) {
                    self.file(&root.join(item.relative), file, cancel);
                }
            }
            Ok(if self.is_full || Instant::now() >= self.end { Flow::Stop } else { Flow::Into })
        })?;
        self.left_out |= walked == Walked::Partly;
        Ok(())
    }

    fn file(&mut self, path: &Path, file: std::fs::File, cancel: &Cancel) {
        let path = path.to_string_lossy().into_owned();
        let found = self.matches.len();
        let sink = MatchSink {
            path: &path,
            matches: &mut self.matches,
            room: &mut self.room,
            is_full: &mut self.is_full,
            is_binary: false,
        };
        let mut sink = sink;
        let reader = CancelRead { file, cancel, end: self.end };
        let searched = self.searcher.search_reader(&self.expression, reader, &mut sink);
        if sink.is_binary {
            self.matches.truncate(found);
        }
        self.left_out |= searched.is_err();
    }
}

/// A pattern without a slash matches the file's own name, as in ripgrep and `.gitignore`.
fn is_included(include: &GlobMatcher, relative: &Path) -> bool {
    if include.glob().glob().contains('/') {
        return include.is_match(relative);
    }
    relative.file_name().is_some_and(|name| include.is_match(name))
}

/// A file whose reads fail when the host disconnects or the time is up.
struct CancelRead<'a> {
    file: std::fs::File,
    cancel: &'a Cancel,
    end: Instant,
}

impl io::Read for CancelRead<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.cancel.check().map_err(io::Error::other)?;
        if Instant::now() >= self.end {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match self.file.read(buffer) {
            // A device without data now.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            result => result,
        }
    }
}

struct MatchSink<'a> {
    path: &'a str,
    matches: &'a mut Vec<GrepMatch>,
    room: &'a mut Room,
    is_full: &'a mut bool,
    is_binary: bool,
}

impl Sink for MatchSink<'_> {
    type Error = io::Error;

    fn matched(&mut self, _searcher: &Searcher, found: &SinkMatch<'_>) -> Result<bool, io::Error> {
        let text = cut(found.bytes());
        if !self.room.take(&[self.path, &text]) {
            *self.is_full = true;
            return Ok(false);
        }
        self.matches.push(GrepMatch {
            path: self.path.to_owned(),
            line: found.line_number().unwrap_or(0),
            text,
        });
        Ok(true)
    }

    fn binary_data(&mut self, _searcher: &Searcher, _offset: u64) -> Result<bool, io::Error> {
        self.is_binary = true;
        Ok(false)
    }
}

/// A line without its end, cut at a character boundary.
fn cut(line: &[u8]) -> String {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    // A few bytes more than are kept, so that the cut falls on whole characters.
    let mut text = String::from_utf8_lossy(&line[..line.len().min(MAX_LINE_BYTES + 4)]).into_owned();
    if line.len() > MAX_LINE_BYTES {
        let border = (0..=MAX_LINE_BYTES.min(text.len())).rev().find(|place| text.is_char_boundary(*place));
        text.truncate(border.unwrap_or(0));
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_cut_between_characters() {
        assert_eq!(cut(b"short\r\n"), "short");
        for lead in 0..4 {
            let line = "x".repeat(lead) + &"ü€😀".repeat(1000);
            let text = cut(line.as_bytes());
            assert!(text.len() <= MAX_LINE_BYTES + '…'.len_utf8() && text.ends_with('…'));
            assert!(line.starts_with(text.trim_end_matches('…')));
        }
        assert!(cut(&[0xff; 2000]).len() <= MAX_LINE_BYTES + 3);
    }

    #[test]
    fn a_search_whose_time_is_up_says_that_there_may_be_more() {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("a.txt"), "needle\n").unwrap();
        let root = place.path().to_str().unwrap();
        let grep = Grep {
            root: root.to_owned(),
            pattern: "needle".to_owned(),
            include: None,
            ignore_case: false,
            literal: true,
            limit: 10,
        };
        let (past, later) = (Instant::now(), Instant::now() + LOOK_TIME);
        for (end, n_found) in [(past, 0), (later, 1)] {
            let Ok(Response::Paths { paths, truncated }) =
                glob_until(end, root, "*.txt", 10, &Cancel::default())
            else {
                panic!("no paths")
            };
            assert_eq!((paths.len(), truncated), (n_found, n_found == 0));
            let Ok(Response::Matches { matches, truncated }) = grep_until(end, &grep, &Cancel::default())
            else {
                panic!("no matches")
            };
            assert_eq!((matches.len(), truncated), (n_found, n_found == 0));
        }
    }

    #[test]
    fn includes_without_a_slash_are_for_file_names() {
        let check = |pattern: &str, path: &str| is_included(&matcher_of(pattern).unwrap(), Path::new(path));
        assert!(check("*.rs", "src/deep/lib.rs"));
        assert!(check("src/**/*.rs", "src/deep/lib.rs"));
        assert!(!check("src/*.rs", "src/deep/lib.rs"));
        assert!(!check("*.rs", "lib.rs.bak"));
    }
}
