//! SVG plot of a load test: memory and latency over time, readable on a light and on a dark page.

use std::fmt::Write as _;
use std::path::Path;

use crate::report::{LoadReport, MIB};
use crate::{ACTIVE_RUNS, ISSUES_PER_MAPPING, JIRA_PROJECTS, LINEAR_TEAMS, MAX_P99};

const WIDTH: f64 = 920.0;
const HEIGHT: f64 = 640.0;
const LEFT: f64 = 72.0;
/// Leaves space for the names of the curves.
const RIGHT: f64 = 800.0;

const STYLE: &str = "\
.page{fill:#ffffff}.text{fill:#1f2328}.faint{fill:#59636e}.grid{stroke:#d1d9e0}.axis{stroke:#818b98}\
.memory{stroke:#0969da}.memory-name{fill:#0969da}.area{fill:#0969da;opacity:.12}\
.high{stroke:#bc4c00}.high-name{fill:#bc4c00}.mid{stroke:#1a7f37}.mid-name{fill:#1a7f37}\
.bound{stroke:#cf222e}.bound-name{fill:#cf222e}\
@media(prefers-color-scheme:dark){.page{fill:#0d1117}.text{fill:#f0f6fc}.faint{fill:#9198a1}\
.grid{stroke:#2f353d}.axis{stroke:#656c76}.memory{stroke:#4493f8}.memory-name{fill:#4493f8}.area{fill:#4493f8;opacity:.18}\
.high{stroke:#f0883e}.high-name{fill:#f0883e}.mid{stroke:#3fb950}.mid-name{fill:#3fb950}\
.bound{stroke:#f85149}.bound-name{fill:#f85149}}\
text{font:13px system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif}\
.title{font-size:18px;font-weight:600}.head{font-weight:600}\
line,polyline{fill:none;stroke-linejoin:round;stroke-linecap:round}";

/// Plot area with a time axis and a value axis.
struct Panel {
    top: f64,
    bottom: f64,
    /// Length of the time axis in seconds.
    span: f64,
    scale: Scale,
}

enum Scale {
    /// Linear from zero to this value.
    Linear(f64),
    /// Logarithmic between two powers of ten.
    Powers(f64, f64),
}

impl Panel {
    fn x(&self, at: f64) -> f64 {
        LEFT + (RIGHT - LEFT) * (at / self.span).clamp(0.0, 1.0)
    }

    fn y(&self, value: f64) -> f64 {
        let share = match self.scale {
            Scale::Linear(max) => value / max,
            Scale::Powers(min, max) => (value / min).log10() / (max / min).log10(),
        };
        self.bottom - (self.bottom - self.top) * share.clamp(0.0, 1.0)
    }

    /// Draws horizontal grid lines at these values, with labels.
    fn grid_lines(&self, svg: &mut String, values: &[f64]) {
        for value in values {
            let y = self.y(*value);
            line(svg, "grid", (LEFT, y), (RIGHT, y), 1.0);
            text(
                svg,
                "faint",
                (LEFT - 10.0, y + 4.5),
                "end",
                &format_number(*value),
            );
        }
        let (x, top, bottom) = (LEFT, self.top, self.bottom);
        line(svg, "axis", (x, top), (x, bottom), 1.0);
        line(svg, "axis", (x, bottom), (RIGHT, bottom), 1.0);
    }

    fn times(&self, svg: &mut String) {
        let (unit, length) = match self.span > 300.0 {
            true => ("minutes", 60.0),
            false => ("seconds", 1.0),
        };
        let whole = self.span / length;
        let steps = [1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0];
        let step = steps.into_iter().find(|step| whole / step <= 8.0);
        let step = step.unwrap_or(120.0);
        for number in 0..=(whole / step) as u32 {
            let at = f64::from(number) * step;
            let x = self.x(at * length);
            line(svg, "axis", (x, self.bottom), (x, self.bottom + 5.0), 1.0);
            text(
                svg,
                "faint",
                (x, self.bottom + 20.0),
                "middle",
                &format_number(at),
            );
        }
        let middle = f64::midpoint(LEFT, RIGHT);
        let label_at = (middle, self.bottom + 40.0);
        text(svg, "faint", label_at, "middle", unit);
    }

    fn curve(&self, svg: &mut String, class: &str, points: &[(f64, f64)]) {
        let mut path = String::new();
        for (at, value) in points {
            // Writing to a string does not fail.
            let _ = write!(path, "{:.1},{:.1} ", self.x(*at), self.y(*value));
        }
        let _ = writeln!(
            svg,
            "<polyline class=\"{class}\" stroke-width=\"2\" points=\"{}\"/>",
            path.trim_end()
        );
    }

    /// Fills the area below a curve.
    fn area(&self, svg: &mut String, points: &[(f64, f64)]) {
        let (Some(first), Some(last)) = (points.first(), points.last()) else {
            return;
        };
        let mut path = format!("{:.1},{:.1} ", self.x(first.0), self.bottom);
        for (at, value) in points {
            let _ = write!(path, "{:.1},{:.1} ", self.x(*at), self.y(*value));
        }
        let _ = write!(path, "{:.1},{:.1}", self.x(last.0), self.bottom);
        let _ = writeln!(svg, "<polygon class=\"area\" points=\"{path}\"/>");
    }

    fn bound(&self, svg: &mut String, value: f64, name: &str) {
        let y = self.y(value);
        let _ = writeln!(
            svg,
            "<line class=\"bound\" stroke-width=\"1.5\" stroke-dasharray=\"6 5\" x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{RIGHT}\" y2=\"{y:.1}\"/>"
        );
        text(svg, "bound-name", (RIGHT + 10.0, y + 4.5), "start", name);
    }
}

fn line(svg: &mut String, class: &str, from: (f64, f64), to: (f64, f64), width: f64) {
    let _ = writeln!(
        svg,
        "<line class=\"{class}\" stroke-width=\"{width}\" x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\"/>",
        from.0, from.1, to.0, to.1
    );
}

fn text(svg: &mut String, class: &str, (x, y): (f64, f64), anchor: &str, content: &str) {
    let _ = writeln!(
        svg,
        "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{content}</text>"
    );
}

/// Formats a number without trailing zeros.
fn format_number(value: f64) -> String {
    let digits = format!("{value:.2}");
    digits
        .trim_end_matches('0')
        .trim_end_matches('.')
        .to_owned()
}

/// Writes `target/load/load.svg`.
pub fn write_svg(report: &LoadReport) {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("load");
    std::fs::create_dir_all(&dir).unwrap();
    let file = dir.join("load.svg");
    std::fs::write(&file, render_svg(report)).unwrap();
    println!("picture: {}", file.display());
}

fn render_svg(report: &LoadReport) -> String {
    let mut svg = String::new();
    let mappings = LINEAR_TEAMS + JIRA_PROJECTS;
    let issues = mappings * ISSUES_PER_MAPPING;
    let _ = writeln!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
         aria-label=\"Memory of the service and latency of callbacks over time\">\n<style>{STYLE}</style>\n\
         <rect class=\"page\" width=\"{WIDTH}\" height=\"{HEIGHT}\" rx=\"8\"/>"
    );
    text(
        &mut svg,
        "text title",
        (LEFT, 34.0),
        "start",
        "One service under load",
    );
    let load = format!(
        "{mappings} mappings, {issues} issues, {ACTIVE_RUNS} runs that report each second, {} webhooks a second",
        report.plan.webhooks_per_second
    );
    text(&mut svg, "faint", (LEFT, 56.0), "start", &load);
    memory(&mut svg, report);
    latency(&mut svg, report);
    svg.push_str("</svg>\n");
    svg
}

fn memory(svg: &mut String, report: &LoadReport) {
    let bound = report.plan.max_resident_bytes as f64 / MIB;
    let max = (bound * 1.25 / 16.0).ceil() * 16.0;
    let panel = Panel {
        top: 100.0,
        bottom: 290.0,
        span: report.plan.duration.as_secs_f64(),
        scale: Scale::Linear(max),
    };
    let head = (LEFT, panel.top - 14.0);
    text(svg, "text head", head, "start", "Resident memory, MiB");
    let step = if max > 100.0 { 32.0 } else { 16.0 };
    let values: Vec<f64> = (0..)
        .map(|number| f64::from(number) * step)
        .take_while(|value| *value <= max)
        .collect();
    panel.grid_lines(svg, &values);
    let points: Vec<(f64, f64)> = report
        .memory
        .iter()
        .map(|memory| (memory.at, memory.resident_bytes as f64 / MIB))
        .collect();
    panel.area(svg, &points);
    panel.curve(svg, "memory", &points);
    panel.bound(svg, bound, &format!("{} at most", format_number(bound)));
    if let Some((_, value)) = points.last() {
        let label_at = (RIGHT + 10.0, panel.y(*value) + 4.5);
        text(
            svg,
            "memory-name",
            label_at,
            "start",
            &format!("{value:.0} at the end"),
        );
    }
    panel.times(svg);
}

fn latency(svg: &mut String, report: &LoadReport) {
    let worst = report.windows.iter().map(|window| window.p99).max();
    let worst = worst.unwrap_or_default().as_secs_f64() * 1e3;
    let powers: Vec<f64> = (-1..)
        .map(|power| 10_f64.powi(power))
        .take_while(|power| *power < 10.0 * worst.max(50.0))
        .collect();
    let panel = Panel {
        top: 380.0,
        bottom: 580.0,
        span: report.plan.duration.as_secs_f64(),
        scale: Scale::Powers(0.1, powers[powers.len() - 1]),
    };
    let head = (LEFT, panel.top - 14.0);
    let heading = "Callbacks, ms from scheduled time to response";
    text(svg, "text head", head, "start", heading);
    panel.grid_lines(svg, &powers);
    let bound = MAX_P99.as_secs_f64() * 1e3;
    panel.bound(svg, bound, &format!("{} at most", format_number(bound)));
    let curve = |of: fn(&crate::report::WindowStats) -> std::time::Duration| {
        let points = report.windows.iter();
        points
            .map(|window| (window.at, of(window).as_secs_f64() * 1e3))
            .collect::<Vec<_>>()
    };
    let (high, mid) = (curve(|window| window.p99), curve(|window| window.p50));
    panel.curve(svg, "high", &high);
    panel.curve(svg, "mid", &mid);
    let mut previous_y = f64::NEG_INFINITY;
    for (class, name, points) in [("high-name", "p99", &high), ("mid-name", "p50", &mid)] {
        if let Some((_, value)) = points.last() {
            let y = (panel.y(*value) + 4.5).max(previous_y + 16.0);
            text(svg, class, (RIGHT + 10.0, y), "start", name);
            previous_y = y;
        }
    }
    panel.times(svg);
}
