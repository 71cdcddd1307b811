//! The measurements, for people and programs.

use comfy_table::{Table, presets};
use serde::Serialize;

use crate::samples::{Samples, Summary};

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    pub(crate) version: String,
    pub(crate) kernel: String,
    pub(crate) processors: usize,
    pub(crate) rootless: bool,
    pub(crate) rows: Vec<Row>,
    pub(crate) facts: Vec<Fact>,
    /// Measurements that could not be made, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) left_out: Vec<String>,
}

/// One thing that was measured many times.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Row {
    pub(crate) what: String,
    pub(crate) who: String,
    #[serde(flatten)]
    pub(crate) times: Summary,
    /// Median divided by the median of the first row of the same `what`.
    pub(crate) ratio: f64,
}

/// One thing that was measured once.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Fact {
    pub(crate) what: String,
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
}

impl Report {
    /// Adds several ways to do the same thing. The others are compared with the first.
    pub(crate) fn compare(&mut self, what: &str, who: Vec<(String, Samples)>) {
        let mut base = None;
        for (who, samples) in who {
            let Some(times) = samples.summary() else { continue };
            let base = *base.get_or_insert(times.p50_ms);
            self.rows.push(Row { what: what.to_owned(), who, times, ratio: times.p50_ms / base });
        }
    }

    pub(crate) fn fact(&mut self, what: impl Into<String>, value: f64, unit: &'static str) {
        self.facts.push(Fact { what: what.into(), value, unit });
    }

    pub(crate) fn leave_out(&mut self, what: impl Into<String>) {
        self.left_out.push(what.into());
    }

    pub(crate) fn as_text(&self) -> String {
        let mut last = "";
        let times = self.rows.iter().map(|row| {
            let what = if row.what == last { "" } else { row.what.as_str() };
            last = &row.what;
            let t = row.times;
            let ms = |value: f64| format!("{value:.2}");
            let ratio = format!("{:.2}×", row.ratio);
            let runs = t.runs.to_string();
            [
                what.to_owned(),
                row.who.clone(),
                runs,
                ms(t.min_ms),
                ms(t.p50_ms),
                ms(t.p95_ms),
                ms(t.p99_ms),
                ratio,
            ]
        });
        let times = render_table(["WHAT", "WHO", "RUNS", "MIN ms", "P50", "P95", "P99", "RATIO"], times);
        let facts =
            self.facts.iter().map(|fact| [fact.what.clone(), format!("{:.2} {}", fact.value, fact.unit)]);
        let facts = render_table(["MEASURED ONCE", ""], facts);
        let user = if self.rootless { "ordinary user" } else { "root" };
        let head = format!(
            "warren {} on Linux {}, {} processors, as {user}",
            self.version, self.kernel, self.processors
        );
        let left_out: String = self.left_out.iter().map(|what| format!("\n\nLeft out: {what}")).collect();
        format!("{head}\n\n{times}\n\n{facts}{left_out}")
    }
}

/// A heading and rows, with columns separated by spaces.
fn render_table<const N: usize>(heading: [&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(heading).add_rows(rows);
    for column in table.column_iter_mut() {
        column.set_padding((0, 3));
    }
    table.lines().map(|row| row.trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}
