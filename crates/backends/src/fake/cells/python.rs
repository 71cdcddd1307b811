//! Lines that look like Python: `print(x)`, `x = 1 + y`, `raise Name("why")`, `sleep(n)`, `exit(n)`, an expression at the
//! end, and `rich …`. An expression is a number, a text in quotes, a name, or a sum of them.

use std::time::Duration;

use bytes::Bytes;
use guest_protocol::Rich;

use super::{
    super::{commands::Program, exec::Ended},
    rich,
};

/// Before the names of variables, which live beside the environment, as `repr` would show them.
pub(super) const PREFIX: &str = "python variable ";

pub(super) async fn run(program: &mut Program, code: &str) -> Ended {
    let lines: Vec<&str> = code.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    for (at, line) in lines.iter().enumerate() {
        let is_last = at + 1 == lines.len();
        match statement(program, line, is_last).await {
            Ok(None) => {}
            Ok(Some(ended)) => return ended,
            Err(name) => {
                return rich::raise(program, "NameError", &format!("name '{name}' is not defined")).await;
            }
        }
    }
    Ended::Code(0)
}

/// The name that is not known, where one is not.
type Unknown = String;

async fn statement(program: &mut Program, line: &str, is_last: bool) -> Result<Option<Ended>, Unknown> {
    if line.starts_with(['#']) || line.starts_with("import ") {
        return Ok(None);
    }
    if let Some(words) = line.strip_prefix("rich ") {
        let words: Vec<_> = words.split(' ').map(str::to_owned).collect();
        let ended = rich::run(program, &words).await;
        return Ok((ended != Ended::Code(0)).then_some(ended));
    }
    if let Some(raised) = line.strip_prefix("raise ") {
        let (name, value) = raised.split_once('(').unwrap_or((raised, ""));
        let value = evaluate(program, value.trim_end_matches(')'))?;
        return Ok(Some(rich::raise(program, name, plain(&value)).await));
    }
    if let Some(argument) = argument(line, "print") {
        let text = format!("{}\n", plain(&evaluate(program, argument)?));
        program.put(&program.stdout, Bytes::from(text)).await;
        return Ok(None);
    }
    if let Some(seconds) = argument(line, "sleep").or_else(|| argument(line, "time.sleep")) {
        let seconds = evaluate(program, seconds)?.parse().unwrap_or(0.0);
        tokio::time::sleep(Duration::try_from_secs_f64(seconds).unwrap_or_default()).await;
        return Ok(None);
    }
    if let Some(code) = argument(line, "exit") {
        return Ok(Some(Ended::Code(evaluate(program, code)?.parse().unwrap_or(1))));
    }
    if line == "ignore_interrupts()" {
        program.exec.ignore(super::SIGINT);
        return Ok(None);
    }
    if let Some((name, value)) = line.split_once('=') {
        let value = evaluate(program, value)?;
        program.env.insert(format!("{PREFIX}{}", name.trim()), value);
        return Ok(None);
    }
    let value = evaluate(program, line)?;
    if is_last && value != "None" {
        program.exec.rich(&Rich::Result { data: [("text/plain".to_owned(), value.into())].into() }).await;
    }
    Ok(None)
}

fn argument<'a>(line: &'a str, function: &str) -> Option<&'a str> {
    line.strip_prefix(function)?.strip_prefix('(')?.strip_suffix(')')
}

fn evaluate(program: &Program, expression: &str) -> Result<String, Unknown> {
    let mut sum: Option<String> = None;
    for term in expression.split('+') {
        let value = term_value(program, term.trim())?;
        sum = Some(match sum {
            None => value,
            Some(sum) => match (sum.parse::<i64>(), value.parse::<i64>()) {
                (Ok(one), Ok(other)) => one.wrapping_add(other).to_string(),
                _ => format!("'{}{}'", plain(&sum), plain(&value)),
            },
        });
    }
    Ok(sum.unwrap_or_default())
}

fn term_value(program: &Program, term: &str) -> Result<String, Unknown> {
    if term.is_empty() || term == "None" {
        return Ok("None".to_owned());
    }
    if term.parse::<f64>().is_ok() {
        return Ok(term.to_owned());
    }
    if term.starts_with(['\'', '"']) {
        return Ok(format!("'{}'", plain(term)));
    }
    program.env.get(&format!("{PREFIX}{term}")).cloned().ok_or_else(|| term.to_owned())
}

/// A text without its quotes.
fn plain(value: &str) -> &str {
    value.trim_matches(['\'', '"'])
}
