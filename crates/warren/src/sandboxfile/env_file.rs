//! Files of environment variables: `NAME=value` on each line.

/// The variables of a file. The error is the number of the line that is none.
pub(super) fn parse(text: &str) -> Result<Vec<(String, String)>, usize> {
    let mut variables = Vec::new();
    for (n, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let line = line.strip_prefix("export ").unwrap_or(line);
        match line.split_once('=') {
            Some((name, value)) if !name.trim().is_empty() => {
                variables.push((name.trim().to_owned(), unquoted(value.trim()).to_owned()));
            }
            _ => return Err(n + 1),
        }
    }
    Ok(variables)
}

/// Without the quotes around it. What is inside stays as it is: there are no escapes.
fn unquoted(value: &str) -> &str {
    for quote in ['"', '\''] {
        if let Some(inner) = value.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote)) {
            return inner;
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_read_as_people_write_them() {
        let text = "# a comment\n\nA=1\nexport B = two words \nC=\"x # y\"\nD='\nE=a=b\r\nF=\n";
        let expected = [("A", "1"), ("B", "two words"), ("C", "x # y"), ("D", "'"), ("E", "a=b"), ("F", "")];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(parse(text), Ok(expected.to_vec()));
        assert_eq!(parse("A=1\nonly a word\n"), Err(2));
        assert_eq!(parse("=x"), Err(1));
    }
}
