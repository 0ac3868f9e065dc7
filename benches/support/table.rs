//! Results as a table: what was measured, how far it scattered, and against what it is held.

use std::time::Duration;

/// What of a row is told beside its name.
pub struct BenchRow {
    pub name: String,
    /// Each round's result.
    pub samples: Vec<f64>,
    /// Anything else that was seen.
    pub note: String,
}

impl BenchRow {
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            samples: Vec::new(),
            note: String::new(),
        }
    }

    pub fn with_samples(name: impl Into<String>, samples: Vec<f64>) -> Self {
        Self {
            samples,
            ..Self::new(name)
        }
    }

    pub fn with_note(self, note: impl Into<String>) -> Self {
        Self {
            note: note.into(),
            ..self
        }
    }

    /// The middle round; half of them were at least as good.
    pub fn median(&self) -> f64 {
        let mut sorted = self.samples.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
    }

    fn spread(&self) -> (f64, f64) {
        let least = self.samples.iter().copied().fold(f64::INFINITY, f64::min);
        let most = self.samples.iter().copied().fold(0.0, f64::max);
        (least, most)
    }
}

/// What is asked of a ratio.
#[derive(Clone, Copy)]
pub enum Threshold {
    AtLeast(f64),
    AtMost(f64),
    /// Nothing: it is only told.
    ReportOnly,
}

/// Prints the rows, each with the least and the most of its rounds.
pub fn print_table(title: &str, unit: &str, rows: &[BenchRow]) {
    println!("\n{title}\n");
    println!("{:<46}{:>12}{:>22}  ", "", unit, "least to most");
    for row in rows {
        let (least, most) = row.spread();
        let spread = format!("{} to {}", shown(least), shown(most));
        println!(
            "{:<46}{:>12}{:>22}  {}",
            row.name,
            shown(row.median()),
            spread,
            row.note
        );
    }
    println!();
}

/// Prints a value beside what is asked of it.
pub fn print_check(name: &str, value: f64, wanted: Threshold) {
    let verdict = match wanted {
        Threshold::AtLeast(bound) => word(value >= bound, &format!("at least {bound}")),
        Threshold::AtMost(bound) => word(value <= bound, &format!("at most {bound}")),
        Threshold::ReportOnly => String::new(),
    };
    println!("{name:<58}{:>10}   {verdict}", shown(value));
}

/// Prints one row's result as a multiple of another's. Says nothing when either is missing.
pub fn print_ratio(rows: &[BenchRow], one: &str, other: &str, wanted: Threshold) {
    let find = |name: &str| rows.iter().find(|row| row.name == name);
    if let (Some(one), Some(other)) = (find(one), find(other)) {
        let name = format!("{} / {}", one.name, other.name);
        print_check(&name, one.median() / other.median(), wanted);
    }
}

fn word(is_met: bool, bound: &str) -> String {
    let verdict = if is_met { "met" } else { "MISSED" };
    format!("wanted {bound}: {verdict}")
}

/// Three digits that count, or all before the point.
fn shown(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value if value >= 1.0 => format!("{value:.2}"),
        value => format!("{value:.3}"),
    }
}

pub fn millis(span: Duration) -> f64 {
    span.as_secs_f64() * 1e3
}
