//! Decides, by simple rules, whether the typed text is a complete piece of code.

use sandbox::Language;

/// The state of the scanner.
#[derive(Debug, Default)]
struct Reading {
    n_open: i32,
    /// The text that ends the string being read.
    until: Option<&'static str>,
    is_continued: bool,
    /// The last character of code, ignoring comments and spaces.
    last: Option<char>,
    is_line_start: bool,
    /// A line begins with a space where indentation matters.
    has_indented: bool,
}

/// Whether `text` can run. `text` without a last newline; an empty last line ends a block.
pub(crate) fn is_complete(language: Language, text: &str) -> bool {
    let reading = read(language, text);
    // The interpreter reports quotes that are not closed on their line, and brackets that close more than was opened.
    if reading.until.is_some_and(|until| ends_with_line(language, until)) {
        return true;
    }
    if reading.until.is_some() || reading.n_open > 0 || reading.is_continued {
        return false;
    }
    match language {
        Language::Python => !is_open_block(text, &reading),
        Language::Bash | Language::Sh => !has_open_words(text),
        _ => true,
    }
}

/// A block of Python continues until an empty line.
fn is_open_block(text: &str, reading: &Reading) -> bool {
    let first = text.lines().next().unwrap_or_default();
    let end = if text.ends_with('\n') { "" } else { text.lines().last().unwrap_or_default() };
    if reading.last == Some(':') || end.trim_start().starts_with('@') {
        return true;
    }
    let begins_block = first.trim_end().ends_with(':') || first.starts_with('@') || reading.has_indented;
    begins_block && text.contains('\n') && !end.trim().is_empty()
}

/// Counts the shell keywords that open and close a block, at the start of a command.
fn has_open_words(text: &str) -> bool {
    let mut n_open = 0;
    for line in text.lines() {
        for command in line.split([';', '|', '&']) {
            for (position, word) in command.split_whitespace().enumerate() {
                match word {
                    "if" | "case" | "for" | "while" | "until" | "select" if position == 0 => n_open += 1,
                    "fi" | "esac" | "done" if position == 0 => n_open -= 1,
                    // A command follows these.
                    "then" | "do" | "else" | "!" | "{" if position == 0 => {
                        let rest = command.trim_start().trim_start_matches(word);
                        n_open += i32::from(has_open_words(rest));
                        break;
                    }
                    _ => break,
                }
            }
        }
    }
    n_open > 0
}

fn read(language: Language, text: &str) -> Reading {
    let mut reading = Reading::default();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        rest = step(language, &mut reading, c, rest);
    }
    reading
}

/// Reads one token and returns the rest.
fn step<'a>(language: Language, reading: &mut Reading, c: char, rest: &'a str) -> &'a str {
    let after = &rest[c.len_utf8()..];
    reading.is_continued = false;
    let was_line_start = std::mem::replace(&mut reading.is_line_start, c == '\n');
    if was_line_start && matches!(c, ' ' | '\t') && reading.n_open == 0 && reading.until.is_none() {
        reading.has_indented = true;
    }
    if let Some(until) = reading.until {
        if c == '\\' && !(language == Language::Bash && until == "'") {
            return skip_one(after);
        }
        if let Some(after) = rest.strip_prefix(until) {
            reading.until = None;
            return after;
        }
        if c == '\n' && ends_with_line(language, until) {
            reading.until = None;
        }
        return after;
    }
    if let Some((until, n)) = opens_string(language, rest) {
        reading.until = Some(until);
        reading.last = Some('"');
        return &rest[n..];
    }
    if is_comment(language, reading.last, rest) {
        return rest.find('\n').map_or("", |end| &rest[end..]);
    }
    match c {
        '(' | '[' | '{' => reading.n_open += 1,
        ')' | ']' | '}' => reading.n_open -= 1,
        '\\' => {
            reading.is_continued = after.is_empty();
            return skip_one(after);
        }
        _ => {}
    }
    if !c.is_whitespace() {
        reading.last = Some(c);
    }
    after
}

fn skip_one(text: &str) -> &str {
    text.chars().next().map_or("", |c| &text[c.len_utf8()..])
}

/// Whether a string that ends with `until` must end on its line.
fn ends_with_line(language: Language, until: &str) -> bool {
    until.len() == 1 && until != "`" && !is_shell(language)
}

fn is_shell(language: Language) -> bool {
    matches!(language, Language::Bash | Language::Sh)
}

fn has_braces_and_slashes(language: Language) -> bool {
    matches!(language, Language::JavaScript | Language::TypeScript)
}

/// The text that ends the string or comment that starts here, and the length of its opening.
fn opens_string(language: Language, rest: &str) -> Option<(&'static str, usize)> {
    let known: &[(&str, &'static str)] = match language {
        Language::Python => &[("\"\"\"", "\"\"\""), ("'''", "'''"), ("\"", "\""), ("'", "'")],
        _ if has_braces_and_slashes(language) => &[("`", "`"), ("/*", "*/"), ("\"", "\""), ("'", "'")],
        _ => &[("\"", "\""), ("'", "'")],
    };
    known.iter().find(|(begin, _)| rest.starts_with(begin)).map(|(begin, until)| (*until, begin.len()))
}

fn is_comment(language: Language, last: Option<char>, rest: &str) -> bool {
    if has_braces_and_slashes(language) {
        return rest.starts_with("//");
    }
    // In a shell, `$#` and `a#b` do not start comments.
    rest.starts_with('#') && !(is_shell(language) && last == Some('$'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_go_on_until_they_are_whole() {
        for (language, text, expected) in [
            (Language::Python, "1 + 1", true),
            (Language::Python, "f(1,", false),
            (Language::Python, "f(1,\n2)", true),
            (Language::Python, "x = '''a", false),
            (Language::Python, "x = '''a\nb'''", true),
            (Language::Python, "x = 1 + \\", false),
            (Language::Python, "x = '(' # (", true),
            (Language::Python, "def f():", false),
            (Language::Python, "def f():  # why", false),
            (Language::Python, "def f():\n    return 1", false),
            (Language::Python, "def f():\n    return 1\n", true),
            (Language::Python, "if x:\n    a\nelse:", false),
            (Language::Python, "@wraps", false),
            (Language::Python, "d = {'a': 1}", true),
            (Language::Python, "x = [1,\n  2]", true),
            (Language::Python, "(1,\n 2)", true),
            (Language::Python, "x = '''\n a'''", true),
            (Language::Python, "def f(a,\n      b):\n    return a", false),
            (Language::Python, "if x: print(1)", true),
            (Language::Python, ")", true),
            (Language::Python, "print('unclosed", true),
            (Language::JavaScript, "function f() {", false),
            (Language::JavaScript, "function f() {\n}", true),
            (Language::JavaScript, "`a", false),
            (Language::JavaScript, "/* a", false),
            (Language::JavaScript, "1 // {", true),
            (Language::Bash, "for i in 1 2; do", false),
            (Language::Bash, "for i in 1 2; do echo $i; done", true),
            (Language::Bash, "if true; then if false", false),
            (Language::Bash, "echo if", true),
            (Language::Bash, "echo 'a", false),
            (Language::Bash, "echo a \\", false),
            (Language::Bash, "f() {", false),
        ] {
            assert_eq!(is_complete(language, text), expected, "{language}: {text:?}");
        }
    }
}
