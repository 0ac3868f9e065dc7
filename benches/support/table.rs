//! Result tables: medians, spread, and comparison with targets.

use std::time::Duration;

/// Row of a result table.
pub struct BenchRow {
    /// Name of the row.
    pub name: String,
    /// Result of each round.
    pub samples: Vec<f64>,
    /// Additional information.
    pub note: String,
}

impl BenchRow {
    /// Creates a row without results.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            samples: Vec::new(),
            note: String::new(),
        }
    }

    /// Creates a row with results.
    pub fn with_samples(name: impl Into<String>, samples: Vec<f64>) -> Self {
        Self {
            samples,
            ..Self::new(name)
        }
    }

    /// Sets the note.
    pub fn with_note(self, note: impl Into<String>) -> Self {
        Self {
            note: note.into(),
            ..self
        }
    }

    /// Returns the median of the rounds.
    pub fn median(&self) -> f64 {
        let mut sorted = self.samples.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
    }

    /// Returns the 99th percentile of the rounds.
    pub fn p99(&self) -> f64 {
        let mut sorted = self.samples.clone();
        sorted.sort_by(f64::total_cmp);
        let rank = (sorted.len() * 99).div_ceil(100).max(1);
        sorted.get(rank - 1).copied().unwrap_or(f64::NAN)
    }

    /// Returns the minimum and the maximum of the rounds.
    fn spread(&self) -> (f64, f64) {
        let min = self.samples.iter().copied().fold(f64::INFINITY, f64::min);
        let max = self.samples.iter().copied().fold(0.0, f64::max);
        (min, max)
    }
}

/// Target of a value.
#[derive(Clone, Copy)]
pub enum Threshold {
    /// Minimum.
    AtLeast(f64),
    /// Maximum.
    AtMost(f64),
    /// No target.
    ReportOnly,
}

/// Prints the rows with median, minimum and maximum.
pub fn print_table(title: &str, unit: &str, rows: &[BenchRow]) {
    println!("\n{title}\n");
    println!("{:<46}{:>12}{:>22}  ", "", unit, "min to max");
    for row in rows {
        let (min, max) = row.spread();
        let spread = format!("{} to {}", format_value(min), format_value(max));
        println!(
            "{:<46}{:>12}{:>22}  {}",
            row.name,
            format_value(row.median()),
            spread,
            row.note
        );
    }
    println!();
}

/// Prints a value with its target.
pub fn print_check(name: &str, value: f64, target: Threshold) {
    let verdict = match target {
        Threshold::AtLeast(bound) => verdict(value >= bound, &format!("at least {bound}")),
        Threshold::AtMost(bound) => verdict(value <= bound, &format!("at most {bound}")),
        Threshold::ReportOnly => String::new(),
    };
    println!("{name:<58}{:>10}   {verdict}", format_value(value));
}

/// Prints the ratio of the medians of two rows. Prints nothing if a row is missing.
pub fn print_ratio(rows: &[BenchRow], one: &str, other: &str, target: Threshold) {
    let find = |name: &str| rows.iter().find(|row| row.name == name);
    if let (Some(one), Some(other)) = (find(one), find(other)) {
        let name = format!("{} / {}", one.name, other.name);
        print_check(&name, one.median() / other.median(), target);
    }
}

/// Formats whether a target is met.
fn verdict(is_met: bool, bound: &str) -> String {
    let result = if is_met { "met" } else { "MISSED" };
    format!("target {bound}: {result}")
}

/// Formats a value with three significant digits, or as an integer from 100.
fn format_value(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value if value >= 1.0 => format!("{value:.2}"),
        value => format!("{value:.3}"),
    }
}

/// Returns a duration in milliseconds.
pub fn millis(span: Duration) -> f64 {
    span.as_secs_f64() * 1e3
}
