//! Prometheus text exposition format, version 0.0.4.
//!
//! Rightly ours: `prometheus-client` writes only OpenMetrics, where counter families lose `_total` and the
//! bucket `le="1"` becomes `le="1.0"`, which for Prometheus 2 and for dashboards is another series.

use std::fmt::{Display, Write};

use store::metrics::HistogramSnapshot;

/// Content type of the format.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Label names and values of one sample.
pub(super) type Labels<'a> = &'a [(&'a str, &'a str)];

/// Metrics page under construction. The samples of a family must directly follow its header.
#[derive(Default)]
pub(super) struct Exposition(String);

impl Exposition {
    /// Starts a family of gauges.
    pub(super) fn gauge(&mut self, name: &'static str, help: &str) -> MetricFamily<'_> {
        self.family(name, "gauge", help)
    }

    /// Starts a family of counters.
    pub(super) fn counter(&mut self, name: &'static str, help: &str) -> MetricFamily<'_> {
        self.family(name, "counter", help)
    }

    /// Starts a family of histograms.
    pub(super) fn histogram(&mut self, name: &'static str, help: &str) -> MetricFamily<'_> {
        self.family(name, "histogram", help)
    }

    fn family(&mut self, name: &'static str, kind: &str, help: &str) -> MetricFamily<'_> {
        self.line(format_args!("# HELP {name} {help}"));
        self.line(format_args!("# TYPE {name} {kind}"));
        MetricFamily { page: self, name }
    }

    fn line(&mut self, line: impl Display) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.0, "{line}");
    }

    /// Returns the page.
    pub(super) fn into_text(self) -> String {
        self.0
    }
}

/// Metric family that samples are added to.
pub(super) struct MetricFamily<'p> {
    page: &'p mut Exposition,
    name: &'static str,
}

impl MetricFamily<'_> {
    /// Adds a sample of a gauge or counter.
    pub(super) fn sample(&mut self, labels: Labels<'_>, value: impl Into<f64>) {
        let (name, labels, value) = (self.name, format_labels(labels), value.into());
        self.page.line(format_args!("{name}{labels} {value}"));
    }

    /// Adds an integer sample without rounding.
    pub(super) fn count(&mut self, labels: Labels<'_>, value: u64) {
        let (name, labels) = (self.name, format_labels(labels));
        self.page.line(format_args!("{name}{labels} {value}"));
    }

    /// Adds the samples of a histogram.
    pub(super) fn histogram(&mut self, labels: Labels<'_>, snapshot: &HistogramSnapshot) {
        let name = self.name;
        let bucket = |bound: &str| {
            let mut with_bound = labels.to_vec();
            with_bound.push(("le", bound));
            format_labels(&with_bound)
        };
        for (bound, count) in &snapshot.buckets {
            let labels = bucket(&bound.to_string());
            self.page
                .line(format_args!("{name}_bucket{labels} {count}"));
        }
        let (all, labels, count) = (bucket("+Inf"), format_labels(labels), snapshot.count);
        self.page.line(format_args!("{name}_bucket{all} {count}"));
        self.page
            .line(format_args!("{name}_sum{labels} {}", snapshot.sum));
        self.page.line(format_args!("{name}_count{labels} {count}"));
    }
}

fn format_labels(labels: Labels<'_>) -> String {
    let mut text = String::new();
    for (name, value) in labels {
        text.push(if text.is_empty() { '{' } else { ',' });
        let value = value
            .replace('\\', r"\\")
            .replace('"', "\\\"")
            .replace('\n', r"\n");
        let _ = write!(text, "{name}=\"{value}\"");
    }
    if !text.is_empty() {
        text.push('}');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_the_prometheus_text_format() {
        let mut page = Exposition::default();
        page.gauge("a", "What it is.").sample(&[], 1.5);
        let mut family = page.counter("b_total", "Another.");
        family.count(&[("x", "1"), ("y", "a\"b\\c\nd")], u64::MAX);
        let snapshot = HistogramSnapshot {
            buckets: vec![(0.25, 1), (1.0, 2)],
            sum: 3.5,
            count: 3,
        };
        page.histogram("c", "Times.")
            .histogram(&[("z", "q")], &snapshot);
        let expected = r#"# HELP a What it is.
# TYPE a gauge
a 1.5
# HELP b_total Another.
# TYPE b_total counter
b_total{x="1",y="a\"b\\c\nd"} 18446744073709551615
# HELP c Times.
# TYPE c histogram
c_bucket{z="q",le="0.25"} 1
c_bucket{z="q",le="1"} 2
c_bucket{z="q",le="+Inf"} 3
c_sum{z="q"} 3.5
c_count{z="q"} 3
"#;
        assert_eq!(page.into_text(), expected);
    }
}
