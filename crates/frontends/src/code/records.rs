//! The rich stream of a cell, record by record, cut to what an answer may hold.

use engine::{ChangedFile, MimeBundle, Rich, RichReader};
use sandbox::ExecId;
use serde_json::Value;

use super::{
    bundle,
    file_link::FileLink,
    result::{CellError, Image, Output, OutputKind, StateLoss},
};
use crate::{
    links::{self, SandboxLinks},
    output::cut,
};

/// Outputs that one answer tells of.
const MAX_OUTPUTS: u32 = 100;
/// A form that is longer is read at the output's address; text keeps its head and tail.
const MAX_FORM_BYTES: usize = 16 * 1024;
/// All forms of an answer together.
const MAX_FORMS_BYTES: usize = 256 * 1024;
const MAX_ERROR_NAME_BYTES: usize = 256;
const MAX_ERROR_VALUE_BYTES: usize = 16 * 1024;
const MAX_TRACEBACK_BYTES: usize = 32 * 1024;
const MAX_WARNINGS: usize = 20;
const MAX_WARNING_CHARS: usize = 500;
const MAX_FILES: usize = 200;

/// Something that a cell reported, as callers get it.
#[derive(Debug)]
pub(crate) enum CellEvent {
    Output(Box<Shown>),
    Error(CellError),
    Warning(String),
    Files { files: Vec<FileLink>, truncated: bool },
    State { kept: bool, lost: Option<StateLoss>, interrupted: bool },
}

/// An output with what does not stand in it.
#[derive(Debug)]
pub(crate) struct Shown {
    pub(crate) output: Output,
    /// Its picture, where it has one and it was asked for.
    pub(crate) picture: Option<Picture>,
    /// A form was left out or cut.
    pub(crate) is_partial: bool,
    /// The length of the whole text, if it was cut.
    pub(crate) cut_from_bytes: Option<usize>,
}

/// A picture to be shown beside the answer.
#[derive(Debug)]
pub(crate) struct Picture {
    pub(crate) mime_type: String,
    pub(crate) bytes: Vec<u8>,
}

/// How pictures are handed over.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PictureCaps {
    pub(crate) each_bytes: usize,
    pub(crate) all_bytes: usize,
}

/// Reads the rich stream of one cell.
#[derive(Debug)]
pub(crate) struct Records {
    reader: RichReader,
    sandbox: String,
    exec: ExecId,
    n_outputs: u32,
    n_warnings: usize,
    left_form_bytes: usize,
    pictures: PictureCaps,
    /// HTML stands in the answer only where there is no plain text.
    prefers_text: bool,
    links: Option<SandboxLinks>,
}

impl Records {
    /// `sandbox` is what the reader calls the sandbox.
    pub(crate) fn new(sandbox: &str, exec: &ExecId, pictures: PictureCaps) -> Self {
        Self {
            reader: RichReader::default(),
            sandbox: sandbox.to_owned(),
            exec: exec.clone(),
            n_outputs: 0,
            n_warnings: 0,
            left_form_bytes: MAX_FORMS_BYTES,
            pictures,
            prefers_text: false,
            links: None,
        }
    }

    /// Leaves out HTML where there is plain text: to a model, tags are only more to read.
    pub(crate) fn prefer_text(&mut self) {
        self.prefers_text = true;
    }

    /// With addresses for a browser.
    #[must_use]
    pub(crate) fn with_links(mut self, links: Option<SandboxLinks>) -> Self {
        self.links = links;
        self
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) -> Vec<CellEvent> {
        let records = self.reader.push(bytes);
        records.into_iter().filter_map(|record| self.tell(record)).collect()
    }

    /// Entries are missing here.
    pub(crate) fn gap(&mut self) {
        self.reader.gap();
    }

    /// Outputs, warnings and records that nobody was told of, as sentences.
    pub(crate) fn left_out(&self) -> impl Iterator<Item = String> {
        let n_outputs = self.n_outputs.saturating_sub(MAX_OUTPUTS);
        let n_records = self.reader.n_left_out() + self.n_warnings.saturating_sub(MAX_WARNINGS) as u64;
        let outputs = (n_outputs > 0).then(|| {
            format!("Outputs {} to {} can be read only through their links.", MAX_OUTPUTS + 1, self.n_outputs)
        });
        let records = (n_records > 0)
            .then(|| format!("Omitted {n_records} outputs that were too long, damaged or too many."));
        outputs.into_iter().chain(records)
    }

    fn tell(&mut self, record: Rich) -> Option<CellEvent> {
        match record {
            Rich::Result { data } => self.output(OutputKind::Result, &data).map(CellEvent::Output),
            Rich::Display { data } => self.output(OutputKind::Display, &data).map(CellEvent::Output),
            Rich::Error { name, value, traceback } => Some(CellEvent::Error(CellError {
                name: cut(&name, MAX_ERROR_NAME_BYTES),
                value: cut(&value, MAX_ERROR_VALUE_BYTES),
                traceback: cut(&traceback, MAX_TRACEBACK_BYTES),
            })),
            Rich::Warning { message } => {
                self.n_warnings += 1;
                (self.n_warnings <= MAX_WARNINGS).then(|| CellEvent::Warning(sentence(&message)))
            }
            Rich::Files { files, truncated } => {
                let truncated = truncated || files.len() > MAX_FILES;
                let linked = |file: ChangedFile| {
                    let url = self.links.as_ref().and_then(|links| links.url_for_file(&file.path));
                    FileLink { url, ..FileLink::new(&self.sandbox, file) }
                };
                let files = files.into_iter().take(MAX_FILES).map(linked).collect();
                Some(CellEvent::Files { files, truncated })
            }
            Rich::State { kept, lost, interrupted } => {
                Some(CellEvent::State { kept, lost: lost.map(StateLoss::from), interrupted })
            }
        }
    }

    fn output(&mut self, kind: OutputKind, data: &MimeBundle) -> Option<Box<Shown>> {
        self.n_outputs = self.n_outputs.saturating_add(1);
        if self.n_outputs > MAX_OUTPUTS {
            return None;
        }
        let number = self.n_outputs;
        let mut shown = Shown {
            output: Output {
                number,
                kind,
                mime_types: bundle::forms(data).map(|(mime, _)| mime.to_owned()).collect(),
                text: None,
                html: None,
                markdown: None,
                latex: None,
                json: None,
                image: None,
                uri: links::output_uri(&self.sandbox, &self.exec, number),
                url: None,
            },
            picture: None,
            is_partial: false,
            cut_from_bytes: None,
        };
        let has_text = data.get("text/plain").is_some_and(Value::is_string);
        let is_left = |mime: &str| mime == "text/html" && has_text && self.prefers_text;
        let forms: Vec<_> = bundle::forms(data).filter(|(mime, _)| !is_left(mime)).collect();
        for (mime, value) in forms {
            self.add_form(&mut shown, mime, value);
        }
        if let Some(form) = bundle::picture(data) {
            self.add_picture(&mut shown, form);
        }
        let url_of = |links: &SandboxLinks| {
            links.url_for_output(&self.exec, number, bundle::best(&shown.output.mime_types)?)
        };
        shown.output.url = self.links.as_ref().and_then(url_of);
        Some(Box::new(shown))
    }

    fn add_form(&mut self, shown: &mut Shown, mime: &str, value: &Value) {
        let room = self.left_form_bytes.min(MAX_FORM_BYTES);
        match (mime, value) {
            ("text/plain", Value::String(text)) => {
                let kept = cut(text, room);
                shown.cut_from_bytes = (kept.len() != text.len()).then_some(text.len());
                shown.is_partial |= shown.cut_from_bytes.is_some();
                self.spend(kept.len());
                shown.output.text = Some(kept);
            }
            ("text/html" | "text/markdown" | "text/latex", Value::String(text)) if text.len() <= room => {
                self.spend(text.len());
                let place = match mime {
                    "text/html" => &mut shown.output.html,
                    "text/markdown" => &mut shown.output.markdown,
                    _ => &mut shown.output.latex,
                };
                *place = Some(text.clone());
            }
            ("application/json", value) if value.to_string().len() <= room => {
                self.spend(value.to_string().len());
                shown.output.json = Some(value.clone());
            }
            (mime, _) => shown.is_partial |= !bundle::is_picture(mime),
        }
    }

    fn add_picture(&mut self, shown: &mut Shown, form: bundle::Form) {
        let n_bytes = form.bytes.len();
        shown.output.image = Some(Image { mime_type: form.mime_type.clone(), bytes: n_bytes as u64 });
        if n_bytes > self.pictures.each_bytes || n_bytes > self.pictures.all_bytes {
            shown.is_partial = true;
            return;
        }
        self.pictures.all_bytes -= n_bytes;
        shown.picture = Some(Picture { mime_type: form.mime_type, bytes: form.bytes });
    }

    fn spend(&mut self, n_bytes: usize) {
        self.left_form_bytes = self.left_form_bytes.saturating_sub(n_bytes);
    }
}

/// One line of bounded length: it stands beside sentences of ours.
fn sentence(message: &str) -> String {
    let line = message.chars().map(|c| if c.is_control() { ' ' } else { c });
    line.take(MAX_WARNING_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn records() -> Records {
        let exec = "exc-0000000000000".parse().unwrap();
        Records::new("web", &exec, PictureCaps { each_bytes: 4, all_bytes: 6 })
    }

    fn shown(records: &mut Records, data: Value) -> Shown {
        let line = format!("{}\n", json!({ "type": "display", "data": data }));
        match records.push(line.as_bytes()).pop() {
            Some(CellEvent::Output(shown)) => *shown,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn small_forms_stand_in_the_output_and_large_ones_at_its_address() {
        let mut records = records();
        let long = "x".repeat(MAX_FORM_BYTES + 1);
        let small =
            shown(&mut records, json!({ "text/plain": "a", "text/html": "<b>", "application/json": [1] }));
        assert_eq!((small.output.html.as_deref(), small.output.json), (Some("<b>"), Some(json!([1]))));
        assert!(!small.is_partial);
        assert_eq!(small.output.uri, "warren://sandboxes/web/execs/exc-0000000000000/outputs/1");
        let large =
            shown(&mut records, json!({ "text/plain": long, "text/html": long, "text/latex": "$x$" }));
        assert!(large.is_partial && large.output.html.is_none());
        assert!(large.output.text.unwrap().contains("bytes left out"));
        assert_eq!((large.output.number, large.output.latex.as_deref()), (2, Some("$x$")));
        for _ in 0..MAX_OUTPUTS {
            records.push(
                format!("{}\n", json!({ "type": "display", "data": { "text/plain": long } })).as_bytes(),
            );
        }
        let told: Vec<_> = records.left_out().collect();
        assert_eq!(told, ["Outputs 101 to 102 can be read only through their links."]);
        assert_eq!(records.left_form_bytes, 0);
    }

    #[test]
    fn html_stands_where_no_text_does_for_those_who_prefer_text() {
        let mut records = records();
        records.prefer_text();
        let frame =
            shown(&mut records, json!({ "text/plain": "a b", "text/html": "<style>…</style><table>" }));
        assert_eq!((frame.output.text.as_deref(), frame.output.html), (Some("a b"), None));
        assert_eq!((frame.output.mime_types.len(), frame.is_partial), (2, false));
        let page = shown(&mut records, json!({ "text/html": "<b>" }));
        assert_eq!(page.output.html.as_deref(), Some("<b>"));
    }

    #[test]
    fn pictures_are_handed_over_as_long_as_there_is_room() {
        let mut records = records();
        let sizes: Vec<_> = ["AAAA", "AAAAAAAA", "AAAA", "AAAA"]
            .into_iter()
            .map(|coded| {
                let shown = shown(&mut records, json!({ "image/png": coded }));
                (
                    shown.output.image.unwrap().bytes,
                    shown.picture.map(|one| one.bytes.len()),
                    shown.is_partial,
                )
            })
            .collect();
        assert_eq!(sizes, [(3, Some(3), false), (6, None, true), (3, Some(3), false), (3, None, true)]);
    }

    #[test]
    fn warnings_are_lines_and_few() {
        let mut records = records();
        let line =
            format!("{}\n", json!({ "type": "warning", "message": format!("a\n{}", "b".repeat(9999)) }));
        let [CellEvent::Warning(told)] = &records.push(line.as_bytes())[..] else { panic!("a warning") };
        assert!(told.starts_with("a bb") && told.chars().count() == MAX_WARNING_CHARS);
        for _ in 0..MAX_WARNINGS {
            records.push(line.as_bytes());
        }
        let told: Vec<_> = records.left_out().collect();
        assert!(told.len() == 1 && told[0].starts_with("Omitted 1 outputs"), "{told:?}");
    }
}
