//! The chart as an SVG: one panel for each thing, both axes logarithmic; medians are a line, 95th percentiles marks.

use std::fmt::Write as _;

const WIDTH: f64 = 300.0;
const HEIGHT: f64 = 240.0;
/// Around the plot: left, top, right, bottom.
const MARGIN: (f64, f64, f64, f64) = (52.0, 40.0, 14.0, 42.0);

/// One thing that grows.
pub(super) struct Panel {
    pub(super) what: String,
    /// The quantity on the x axis.
    pub(super) of: &'static str,
    pub(super) unit: &'static str,
    /// x, median, 95th percentile.
    pub(super) points: Vec<(f64, f64, f64)>,
}

pub(super) fn drawn(panels: &[Panel]) -> String {
    let width = WIDTH * panels.len() as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {HEIGHT}\" width=\"{width}\" height=\"{HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n\
         <style>text{{fill:#57606a}} .name{{fill:#24292f;font-size:13px}} .grid{{stroke:#d0d7de}} \
         .line{{stroke:#0969da;fill:none;stroke-width:2}} .dot{{fill:#0969da}} .late{{stroke:#bc4c00}} \
         @media (prefers-color-scheme:dark){{text{{fill:#9198a1}} .name{{fill:#f0f6fc}} .grid{{stroke:#3d444d}}}}</style>\n"
    );
    for (number, panel) in panels.iter().enumerate().filter(|(_, panel)| !panel.points.is_empty()) {
        svg.push_str(&one(panel, WIDTH * number as f64));
    }
    svg.push_str("</svg>\n");
    svg
}

fn one(panel: &Panel, left: f64) -> String {
    let xs = panel.points.iter().map(|point| point.0);
    let ys = panel.points.iter().flat_map(|point| [point.1, point.2]);
    let (across, up) = (
        Axis::around(xs, left + MARGIN.0, left + WIDTH - MARGIN.2),
        Axis::around(ys, HEIGHT - MARGIN.3, MARGIN.1),
    );
    let mut svg = String::new();
    let mut add = |text: std::fmt::Arguments<'_>| {
        // Writing to a string cannot fail.
        svg.write_fmt(text).and_then(|()| svg.write_char('\n')).unwrap_or(());
    };
    let Panel { what, of, unit, points } = panel;
    add(format_args!("<text class=\"name\" x=\"{}\" y=\"18\">{what}, {unit}</text>", left + MARGIN.0));
    for (value, at) in up.marks() {
        let (x1, x2) = (left + MARGIN.0, left + WIDTH - MARGIN.2);
        add(format_args!("<line class=\"grid\" x1=\"{x1}\" x2=\"{x2}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>"));
        add(format_args!(
            "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            x1 - 6.0,
            at + 4.0,
            short(value)
        ));
    }
    for (x, ..) in points {
        let (at, y) = (across.place(*x), HEIGHT - MARGIN.3 + 16.0);
        add(format_args!("<text x=\"{at:.1}\" y=\"{y}\" text-anchor=\"middle\">{}</text>", short(*x)));
    }
    let (middle, y) = (left + (MARGIN.0 + WIDTH - MARGIN.2) / 2.0, HEIGHT - 8.0);
    add(format_args!(
        "<text x=\"{middle:.1}\" y=\"{y}\" text-anchor=\"middle\">{of} (line: median, bar: to p95)</text>"
    ));
    let line: Vec<_> =
        points.iter().map(|(x, y, _)| format!("{:.1},{:.1}", across.place(*x), up.place(*y))).collect();
    add(format_args!("<polyline class=\"line\" points=\"{}\"/>", line.join(" ")));
    for (x, median, late) in points {
        let (x, y, top) = (across.place(*x), up.place(*median), up.place(*late));
        add(format_args!("<line class=\"late\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{y:.1}\" y2=\"{top:.1}\"/>"));
        add(format_args!("<circle class=\"dot\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"/>"));
    }
    svg
}

/// A logarithmic axis over whole decades.
struct Axis {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Axis {
    fn around(values: impl Iterator<Item = f64> + Clone, from: f64, to: f64) -> Self {
        let low = values.clone().fold(f64::MAX, f64::min).max(1e-3).log10().floor();
        let high = values.fold(0.0_f64, f64::max).max(1e-3).log10().ceil().max(low + 1.0);
        Self { low, high, from, to }
    }

    fn place(&self, value: f64) -> f64 {
        self.from + (value.max(1e-3).log10() - self.low) / (self.high - self.low) * (self.to - self.from)
    }

    /// Each decade and its place.
    fn marks(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        (self.low as i32..=self.high as i32)
            .map(|decade| 10_f64.powi(decade))
            .map(|value| (value, self.place(value)))
    }
}

fn short(value: f64) -> String {
    match value {
        _ if value >= 1e9 => format!("{}G", value / 1e9),
        _ if value >= 1e6 => format!("{}M", value / 1e6),
        _ if value >= 1e3 => format!("{}k", value / 1e3),
        _ => format!("{value}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn larger_values_are_further_right_and_higher() {
        let points = vec![(1.0, 2.0, 3.0), (10.0, 2.5, 4.0), (1000.0, 40.0, 90.0)];
        let panel = Panel { what: "create".to_owned(), of: "sandboxes", unit: "ms", points };
        let svg = drawn(&[panel]);
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"), "{svg}");
        // One decade up: 1 to 100 ms; three across.
        assert!(
            svg.contains(">1k</text>") && svg.contains(">100</text>") && !svg.contains(">1000</text>"),
            "{svg}"
        );
        let axis = Axis::around([1.0, 1000.0].into_iter(), 0.0, 300.0);
        assert_eq!([1.0, 10.0, 1000.0].map(|value| axis.place(value).round()), [0.0, 100.0, 300.0]);
    }
}
