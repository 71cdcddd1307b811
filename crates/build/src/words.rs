//! Words as Docker separates them, and lists in JSON.

/// Splits at blanks outside of quotes; quotes and escapes stay, as whoever expands the word needs them.
pub(crate) fn split(text: &str, escape: char) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut quote = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if quote.is_none() && c.is_whitespace() {
            if !word.is_empty() {
                words.push(std::mem::take(&mut word));
            }
            continue;
        }
        word.push(c);
        if c == escape && quote != Some('\'') {
            word.extend(chars.next());
        } else if quote == Some(c) {
            quote = None;
        } else if quote.is_none() && matches!(c, '\'' | '"') {
            quote = Some(c);
        }
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

/// `["a", "b"]`; nothing for what is no list of strings.
pub(crate) fn json_list(text: &str) -> Option<Vec<String>> {
    if !text.starts_with('[') {
        return None;
    }
    serde_json::from_str(text).ok()
}

/// Takes `--name` and `--name=value` from the front; `--` ends them, and goes.
pub(crate) fn flags(text: &str) -> (Vec<(String, Option<String>)>, &str) {
    let mut rest = text.trim_start();
    let mut flags = Vec::new();
    while let Some(begun) = rest.strip_prefix("--") {
        let (flag, after) = begun.split_once(char::is_whitespace).unwrap_or((begun, ""));
        rest = after.trim_start();
        if flag.is_empty() {
            break;
        }
        flags.push(match flag.split_once('=') {
            Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
            None => (flag.to_owned(), None),
        });
    }
    (flags, rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_and_escapes_hold_words_together() {
        assert_eq!(split(r#" a  b="x y" c\ d 'e\' f "#, '\\'), ["a", r#"b="x y""#, r"c\ d", r"'e\'", "f"]);
        assert_eq!(split(r#""open and on"#, '\\'), [r#""open and on"#]);
        assert!(split("  ", '\\').is_empty());
    }

    #[test]
    fn only_lists_of_strings_are_lists() {
        assert_eq!(json_list(r#"["a", "b c"]"#).unwrap(), ["a", "b c"]);
        for text in ["['a']", "[1]", "a", "[\"a\"", "[\"a\"] b", "{}"] {
            assert_eq!(json_list(text), None, "{text}");
        }
    }

    #[test]
    fn flags_end_where_words_begin() {
        let (found, rest) = flags("--from=a --link  x --y");
        assert_eq!(found, [("from".to_owned(), Some("a".to_owned())), ("link".to_owned(), None)]);
        assert_eq!(rest, "x --y");
        assert_eq!(flags("-- --x"), (Vec::new(), "--x"));
    }
}
