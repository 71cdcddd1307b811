//! From bytes to instructions as written: directives, comments, continuation, here-documents.

use crate::{
    MAX_DOCKERFILE_BYTES, MAX_INSTRUCTIONS,
    error::{Error, Result},
    instruction::Heredoc,
    words,
};

/// Here-documents of one instruction.
const MAX_HEREDOCS: usize = 64;

/// One instruction with all its lines joined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    /// The number of its first line, from 1.
    pub(crate) number: usize,
    /// In upper case.
    pub(crate) keyword: String,
    pub(crate) rest: String,
    pub(crate) heredocs: Vec<Heredoc>,
}

#[derive(Debug)]
pub(crate) struct Lines {
    pub(crate) escape: char,
    pub(crate) lines: Vec<Line>,
    pub(crate) warnings: Vec<String>,
}

pub(crate) fn read(bytes: &[u8]) -> Result<Lines> {
    if bytes.len() > MAX_DOCKERFILE_BYTES {
        let message = format!("the Dockerfile has {} bytes; at most {MAX_DOCKERFILE_BYTES} fit", bytes.len());
        return Err(Error::new(1, message));
    }
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let before = bytes[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count();
        Error::new(before + 1, "the text is not UTF-8")
    })?;
    if let Some(at) = text.find('\0') {
        return Err(Error::new(text[..at].matches('\n').count() + 1, "the text has a NUL byte"));
    }
    Reader::new(text)?.all()
}

struct Reader<'a> {
    lines: Vec<&'a str>,
    /// Index of the next line.
    next: usize,
    escape: char,
    warnings: Vec<String>,
}

impl<'a> Reader<'a> {
    fn new(text: &'a str) -> Result<Self> {
        let lines = text.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line)).collect();
        let mut reader = Self { lines, next: 0, escape: '\\', warnings: Vec::new() };
        reader.read_directives()?;
        Ok(reader)
    }

    /// Comments of the form `# name=value` before anything else.
    fn read_directives(&mut self) -> Result<()> {
        for (index, line) in self.lines.iter().enumerate() {
            let Some(comment) = line.trim_start().strip_prefix('#') else { break };
            let Some((name, value)) = comment.split_once('=') else { break };
            match name.trim().to_ascii_lowercase().as_str() {
                "escape" => {
                    self.escape = match value.trim() {
                        "\\" => '\\',
                        "`" => '`',
                        other => {
                            let message = format!("the directive escape takes \\ or `, not {other:?}");
                            return Err(Error::new(index + 1, message));
                        }
                    }
                }
                "syntax" | "check" => {}
                // Anything else is a comment, and the last chance for directives has gone.
                _ => break,
            }
        }
        Ok(())
    }

    fn all(mut self) -> Result<Lines> {
        let mut lines = Vec::new();
        while self.next < self.lines.len() {
            let number = self.next + 1;
            let line = self.lines[self.next];
            self.next += 1;
            if is_empty(line) || is_comment(line) {
                continue;
            }
            if lines.len() == MAX_INSTRUCTIONS {
                return Err(Error::new(number, format!("more than {MAX_INSTRUCTIONS} instructions")));
            }
            let joined = self.join(line);
            let (keyword, rest) = joined.split_once(char::is_whitespace).unwrap_or((&joined, ""));
            let keyword = keyword.to_ascii_uppercase();
            let rest = rest.trim().to_owned();
            let heredocs = match keyword.as_str() {
                "RUN" | "COPY" | "ADD" => self.read_heredocs(number, &rest)?,
                _ => Vec::new(),
            };
            lines.push(Line { number, keyword, rest, heredocs });
        }
        Ok(Lines { escape: self.escape, lines, warnings: self.warnings })
    }

    /// Joins `first` with the lines that continue it. Comments in between go; so do empty lines, as Docker still has
    /// it.
    fn join(&mut self, first: &str) -> String {
        let mut joined = String::new();
        let mut line = first.trim_start();
        loop {
            let Some(begun) = continued(line, self.escape) else {
                joined.push_str(line);
                return joined;
            };
            joined.push_str(begun);
            line = loop {
                let Some(next) = self.lines.get(self.next) else { return joined };
                self.next += 1;
                if is_empty(next) {
                    // What a split leaves after the last newline is no line.
                    if self.next < self.lines.len() {
                        self.warnings
                            .push(format!("line {}: an empty line inside an instruction", self.next));
                    }
                } else if !is_comment(next) {
                    break next;
                }
            };
        }
    }

    fn read_heredocs(&mut self, number: usize, rest: &str) -> Result<Vec<Heredoc>> {
        let mut heredocs = Vec::new();
        for word in words::split(rest, self.escape) {
            let Some(mut heredoc) = opening(&word) else { continue };
            if heredocs.len() == MAX_HEREDOCS {
                return Err(Error::new(number, format!("more than {MAX_HEREDOCS} here-documents")));
            }
            heredoc.content = self.read_body(number, &heredoc)?;
            heredocs.push(heredoc);
        }
        Ok(heredocs)
    }

    fn read_body(&mut self, number: usize, heredoc: &Heredoc) -> Result<String> {
        let mut content = String::new();
        while let Some(line) = self.lines.get(self.next) {
            self.next += 1;
            let line = if heredoc.strips_tabs { line.trim_start_matches('\t') } else { line };
            if line == heredoc.name {
                return Ok(content);
            }
            content.push_str(line);
            content.push('\n');
        }
        Err(Error::new(number, format!("the here-document has no end: no line is {}", heredoc.name)))
    }
}

fn is_empty(line: &str) -> bool {
    line.trim().is_empty()
}

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with('#')
}

/// Returns the line up to the escape at its end, if it has one. Blanks after it do not count; an escaped escape does
/// not either.
fn continued(line: &str, escape: char) -> Option<&str> {
    let begun = line.trim_end_matches([' ', '\t']).strip_suffix(escape)?;
    (!begun.ends_with(escape)).then_some(begun)
}

/// `<<EOF`, `<<-EOF`, `3<<"EOF"`.
fn opening(word: &str) -> Option<Heredoc> {
    let rest = word.trim_start_matches(|c: char| c.is_ascii_digit()).strip_prefix("<<")?;
    let (strips_tabs, name) = match rest.strip_prefix('-') {
        Some(name) => (true, name),
        None => (false, rest),
    };
    let bare: String = name.chars().filter(|c| !matches!(c, '"' | '\'')).collect();
    let is_name = !bare.is_empty() && bare.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c));
    is_name.then(|| Heredoc {
        expands: bare == name,
        name: bare,
        strips_tabs,
        opening: word.to_owned(),
        content: String::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<String> {
        let lines = read(text.as_bytes()).unwrap().lines;
        lines.into_iter().map(|line| format!("{}:{} {}", line.number, line.keyword, line.rest)).collect()
    }

    #[test]
    fn lines_are_joined_and_comments_go() {
        assert_eq!(
            texts("# a comment\nFROM a\n\nrun echo \\\n  # inside\n\n  b \\  \n c\r\n  CMD x\\\\\nUSER y"),
            ["2:FROM a", "4:RUN echo   b  c", "9:CMD x\\\\", "10:USER y"]
        );
        assert_eq!(texts("RUN a \\\n"), ["1:RUN a"]);
    }

    #[test]
    fn a_directive_changes_the_escape_only_at_the_top() {
        assert_eq!(
            texts("# syntax=docker/dockerfile:1\n# escape=`\nRUN a `\n b \\\nUSER c"),
            ["3:RUN a  b \\", "5:USER c"]
        );
        assert_eq!(texts("# about=this\n# escape=`\nRUN a `\nUSER c"), ["3:RUN a `", "4:USER c"]);
        assert!(read(b"# escape=x\nFROM a").unwrap_err().message.contains("escape"));
    }

    #[test]
    fn here_documents_are_taken_whole() {
        let lines = read(
            b"RUN cat <<EOF > /x\n a\n# no comment\nEOF\nCOPY <<-\"A\" <<B /d/\n\tx $y\n\tA\nb\nB\nUSER z",
        )
        .unwrap()
        .lines;
        assert_eq!(lines.len(), 3);
        assert_eq!(lines[0].heredocs[0].content, " a\n# no comment\n");
        let [a, b] = &lines[1].heredocs[..] else { panic!("{lines:?}") };
        assert_eq!(
            (a.content.as_str(), a.expands, b.content.as_str(), b.expands),
            ("x $y\n", false, "b\n", true)
        );
        assert_eq!(
            read(b"FROM a\nRUN <<EOF\nx").unwrap_err(),
            Error::new(2, "the here-document has no end: no line is EOF")
        );
        // Only where Docker has them.
        assert_eq!(texts("CMD cat <<EOF\nUSER x").len(), 2);
    }

    #[test]
    fn what_is_no_text_is_refused_with_its_line() {
        assert_eq!(read(b"FROM a\n\xff").unwrap_err().line, 2);
        assert_eq!(read(b"FROM a\n\nRUN \0").unwrap_err().line, 3);
        assert!(read(&vec![b'a'; MAX_DOCKERFILE_BYTES + 1]).is_err());
        assert!(read("USER x\n".repeat(MAX_INSTRUCTIONS + 1).as_bytes()).is_err());
    }
}
