//! The two text formats that Prometheus and others read.

/// A text format of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricsFormat {
    /// OpenMetrics 1.0.0.
    OpenMetrics,
    /// Version 0.0.4 of Prometheus' own format.
    Prometheus,
}

/// Rewrites OpenMetrics, as our encoder writes it, to version 0.0.4. The samples are the same. There, counters are
/// declared with the `_total` of their samples, there are no infos and no units, and nothing marks the end.
pub(super) fn to_prometheus(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    // The help comes first, and what its name is depends on the type.
    let mut help = None;
    for line in text.lines() {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some("HELP"), Some(name), Some(told)) => help = Some((name, told)),
            (Some("#"), Some("TYPE"), Some(name), Some(sort)) => {
                let (suffix, sort) = match sort {
                    "counter" => ("_total", "counter"),
                    "info" => ("_info", "gauge"),
                    "unknown" => ("", "untyped"),
                    other => ("", other),
                };
                if let Some((_, told)) = help.take().filter(|(of, _)| *of == name) {
                    out.push_str(&format!("# HELP {name}{suffix} {told}\n"));
                }
                out.push_str(&format!("# TYPE {name}{suffix} {sort}\n"));
            }
            (Some("#"), ..) => {}
            _ => {
                out.push_str(line);
                out.push('\n');
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_declaration_names_its_samples_as_they_are() {
        let text = "# HELP warren_build The version.\n# TYPE warren_build info\nwarren_build_info{version=\"1\"} 1\n\
            # HELP warren_creates Creates, by result.\n# TYPE warren_creates counter\n\
            warren_creates_total{result=\"ok\"} 2\n\
            # HELP warren_create_seconds Time.\n# TYPE warren_create_seconds histogram\n\
            # UNIT warren_create_seconds seconds\nwarren_create_seconds_sum 0.5\nwarren_create_seconds_count 1\n\
            warren_create_seconds_bucket{le=\"+Inf\"} 1\n\
            # HELP process_threads Threads.\n# TYPE process_threads gauge\nprocess_threads 7\n# EOF\n";
        let expected = "# HELP warren_build_info The version.\n# TYPE warren_build_info gauge\n\
            warren_build_info{version=\"1\"} 1\n\
            # HELP warren_creates_total Creates, by result.\n# TYPE warren_creates_total counter\n\
            warren_creates_total{result=\"ok\"} 2\n\
            # HELP warren_create_seconds Time.\n# TYPE warren_create_seconds histogram\n\
            warren_create_seconds_sum 0.5\nwarren_create_seconds_count 1\n\
            warren_create_seconds_bucket{le=\"+Inf\"} 1\n\
            # HELP process_threads Threads.\n# TYPE process_threads gauge\nprocess_threads 7\n";
        assert_eq!(to_prometheus(text), expected);
    }
}
