//! The text format that Prometheus reads (version 0.0.4).

use std::fmt::{Display, Write};

use store::metrics::HistogramSnapshot;

/// What the reply's head says.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Names and values of labels.
pub type Labels<'a> = &'a [(&'a str, &'a str)];

/// A page as it is written. A family's samples must follow its head.
#[derive(Default)]
pub struct Exposition(String);

impl Exposition {
    /// Begins a family of numbers that go up and down.
    pub fn gauge(&mut self, name: &'static str, help: &str) -> MetricFamily<'_> {
        self.family(name, "gauge", help)
    }

    /// Begins a family of numbers that only grow.
    pub fn counter(&mut self, name: &'static str, help: &str) -> MetricFamily<'_> {
        self.family(name, "counter", help)
    }

    /// Begins a family of histograms.
    pub fn histogram(&mut self, name: &'static str, help: &str) -> MetricFamily<'_> {
        self.family(name, "histogram", help)
    }

    fn family(&mut self, name: &'static str, kind: &str, help: &str) -> MetricFamily<'_> {
        self.line(format_args!("# HELP {name} {help}"));
        self.line(format_args!("# TYPE {name} {kind}"));
        MetricFamily { page: self, name }
    }

    fn line(&mut self, line: impl Display) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "{line}");
    }

    pub fn into_text(self) -> String {
        self.0
    }
}

/// A family whose samples are being written.
pub struct MetricFamily<'p> {
    page: &'p mut Exposition,
    name: &'static str,
}

impl MetricFamily<'_> {
    /// One sample of a gauge or a counter.
    pub fn sample(&mut self, labels: Labels<'_>, value: impl Into<f64>) {
        let (name, labels, value) = (self.name, written(labels), value.into());
        self.page.line(format_args!("{name}{labels} {value}"));
    }

    /// A count, exact as far as the format is.
    pub fn count(&mut self, labels: Labels<'_>, value: u64) {
        let (name, labels) = (self.name, written(labels));
        self.page.line(format_args!("{name}{labels} {value}"));
    }

    /// One histogram.
    pub fn histogram(&mut self, labels: Labels<'_>, seen: &HistogramSnapshot) {
        let name = self.name;
        let bucket = |bound: &str| {
            let mut with_bound = labels.to_vec();
            with_bound.push(("le", bound));
            written(&with_bound)
        };
        for (bound, count) in &seen.buckets {
            let labels = bucket(&bound.to_string());
            self.page
                .line(format_args!("{name}_bucket{labels} {count}"));
        }
        let (all, labels, count) = (bucket("+Inf"), written(labels), seen.count);
        self.page.line(format_args!("{name}_bucket{all} {count}"));
        self.page
            .line(format_args!("{name}_sum{labels} {}", seen.sum));
        self.page.line(format_args!("{name}_count{labels} {count}"));
    }
}

fn written(labels: Labels<'_>) -> String {
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
    fn a_page_is_written_as_prometheus_reads_it() {
        let mut page = Exposition::default();
        page.gauge("a", "What it is.").sample(&[], 1.5);
        let mut family = page.counter("b_total", "Another.");
        family.count(&[("x", "1"), ("y", "a\"b\\c\nd")], u64::MAX);
        let seen = HistogramSnapshot {
            buckets: vec![(0.25, 1), (1.0, 2)],
            sum: 3.5,
            count: 3,
        };
        page.histogram("c", "Times.")
            .histogram(&[("z", "q")], &seen);
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
