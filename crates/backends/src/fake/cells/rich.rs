//! The program `rich`: writes a record of what a real interpreter would show.
//!
//! `rich result TEXT`, `rich display MIME DATA [MIME DATA …]`, `rich picture BYTES [MIME]`, `rich error NAME VALUE`,
//! `rich warning TEXT`, `rich files PATH SIZE [CHANGE]`, `rich raw TEXT` (bytes that need be no record).

use guest_protocol::{ChangedFile, FileChange, MimeBundle, Rich};
use serde_json::Value;

use super::super::{commands::Program, exec::Ended};

/// In base64 how a PNG begins and a zero, which are nine bytes; what follows, in threes, is no picture.
const PNG_HEAD: &str = "iVBORw0KGgoA";
const PNG_HEAD_BYTES: usize = 9;
const MAX_PICTURE_BYTES: usize = 16 * 1024 * 1024;

pub(in crate::fake) async fn run(program: &Program, arguments: &[String]) -> Ended {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let record = match &words[..] {
        ["result", text @ ..] => Rich::Result { data: bundle(&["text/plain", &text.join(" ")]) },
        ["display", forms @ ..] => Rich::Display { data: bundle(forms) },
        ["picture", bytes, rest @ ..] => {
            let mime = rest.first().unwrap_or(&"image/png");
            let picture = picture(bytes.parse().unwrap_or(PNG_HEAD_BYTES));
            Rich::Display { data: bundle(&["text/plain", "<Figure>", mime, &picture]) }
        }
        ["error", name, value @ ..] => return raise(program, name, &value.join(" ")).await,
        ["warning", message @ ..] => Rich::Warning { message: message.join(" ") },
        ["files", path, size, rest @ ..] => Rich::Files {
            files: vec![ChangedFile {
                path: (*path).to_owned(),
                size: size.parse().unwrap_or_default(),
                change: if rest.first() == Some(&"modified") {
                    FileChange::Modified
                } else {
                    FileChange::Created
                },
            }],
            truncated: false,
        },
        ["raw", text @ ..] => {
            program.exec.rich_bytes(format!("{}\n", text.join(" ")).into()).await;
            return Ended::Code(0);
        }
        _ => {
            program.complain("rich: say what").await;
            return Ended::Code(2);
        }
    };
    program.exec.rich(&record).await;
    Ended::Code(0)
}

/// An exception that nobody caught.
pub(super) async fn raise(program: &Program, name: &str, value: &str) -> Ended {
    let record = Rich::Error {
        name: name.to_owned(),
        value: value.to_owned(),
        traceback: format!("Cell, line 1\n{name}: {value}\n"),
    };
    program.exec.rich(&record).await;
    Ended::Code(1)
}

fn bundle(forms: &[&str]) -> MimeBundle {
    let pairs = forms.chunks_exact(2);
    pairs.map(|pair| (pair[0].to_owned(), form(pair[0], pair[1]))).collect()
}

fn form(mime: &str, text: &str) -> Value {
    let json = mime.ends_with("json").then(|| serde_json::from_str(text).ok()).flatten();
    json.unwrap_or_else(|| Value::from(text))
}

fn picture(n_bytes: usize) -> String {
    let n_more = n_bytes.min(MAX_PICTURE_BYTES).saturating_sub(PNG_HEAD_BYTES);
    format!("{PNG_HEAD}{}", "AAAA".repeat(n_more.div_ceil(3)))
}
