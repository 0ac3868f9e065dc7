//! Columns of the scoreboard in tables: CSV and texts.

use super::scoreboard::{HoursView, ScoreView};

/// Column of the scoreboard as a table. In a text, percentiles share a column.
pub struct ScoreColumn {
    head: &'static str,
    value: ColumnValue,
}

/// Value of a column. Unknown values are empty in CSV and a dash in a text.
enum ColumnValue {
    Count(fn(&ScoreView) -> u64),
    Number {
        of: fn(&ScoreView) -> Option<f64>,
        decimals: usize,
        /// Before and after the number in a text.
        around: (&'static str, &'static str),
    },
    Hours(fn(&ScoreView) -> Option<HoursView>),
}

const fn count(head: &'static str, of: fn(&ScoreView) -> u64) -> ScoreColumn {
    let value = ColumnValue::Count(of);
    ScoreColumn { head, value }
}

const fn number(
    head: &'static str,
    of: fn(&ScoreView) -> Option<f64>,
    decimals: usize,
    around: (&'static str, &'static str),
) -> ScoreColumn {
    let value = ColumnValue::Number {
        of,
        decimals,
        around,
    };
    ScoreColumn { head, value }
}

const fn hours(head: &'static str, of: fn(&ScoreView) -> Option<HoursView>) -> ScoreColumn {
    let value = ColumnValue::Hours(of);
    ScoreColumn { head, value }
}

impl ScoreColumn {
    /// All columns.
    pub const ALL: [Self; 13] = [
        count("Runs", |row| row.runs),
        count("Pull requests", |row| row.pull_requests),
        count("Merged", |row| row.merged),
        count("Closed", |row| row.closed),
        count("Open", |row| row.open),
        number(
            "Merged share",
            |row| row.merged_share.map(|share| share * 100.0),
            0,
            ("", " %"),
        ),
        number("Review rounds", |row| row.review_rounds, 1, ("", "")),
        hours("Hours to pull request", |row| row.hours_to_pull_request),
        hours("Hours to merge", |row| row.hours_to_merge),
        number("Cost", |row| row.cost_usd, 2, ("$", "")),
        number(
            "Cost per merged",
            |row| row.cost_per_merged_usd,
            2,
            ("$", ""),
        ),
        number(
            "Commits by people",
            |row| row.human_commits_after,
            1,
            ("", ""),
        ),
        count("Failed runs", |row| row.failures_by_reason.values().sum()),
    ];

    /// Returns the heads of all columns as part of a line of CSV.
    pub fn csv_heads() -> String {
        let heads = Self::ALL.iter().flat_map(Self::own_csv_heads);
        heads.collect::<Vec<_>>().join(",")
    }

    /// Returns the values of all columns as part of a line of CSV.
    pub fn csv_values(row: &ScoreView) -> String {
        let values = Self::ALL
            .iter()
            .flat_map(|column| column.own_csv_values(row));
        values.collect::<Vec<_>>().join(",")
    }

    fn own_csv_heads(&self) -> Vec<String> {
        match self.value {
            ColumnValue::Hours(_) => ["p50", "p95"]
                .map(|percentile| format!("{} {percentile}", self.head))
                .to_vec(),
            ColumnValue::Count(_) | ColumnValue::Number { .. } => vec![self.head.to_owned()],
        }
    }

    fn own_csv_values(&self, row: &ScoreView) -> Vec<String> {
        match self.value {
            ColumnValue::Count(of) => vec![of(row).to_string()],
            ColumnValue::Number { of, decimals, .. } => {
                let text = of(row).map(|value| format!("{value:.decimals$}"));
                vec![text.unwrap_or_default()]
            }
            ColumnValue::Hours(of) => {
                let percentiles = of(row).map(|hours| [hours.p50, hours.p95]);
                let texts = percentiles.map(|both| both.map(|value| format!("{value:.1}")));
                texts.unwrap_or_default().to_vec()
            }
        }
    }

    /// Returns the head in a text.
    pub fn head(&self) -> String {
        match self.value {
            ColumnValue::Hours(_) => format!("{} (p50 / p95)", self.head),
            ColumnValue::Count(_) | ColumnValue::Number { .. } => self.head.to_owned(),
        }
    }

    /// Returns the value in a text.
    pub fn cell(&self, row: &ScoreView) -> String {
        let values = self.own_csv_values(row);
        if values.iter().all(String::is_empty) {
            return "–".to_owned();
        }
        let (before, after) = match self.value {
            ColumnValue::Number { around, .. } => around,
            ColumnValue::Count(_) | ColumnValue::Hours(_) => ("", ""),
        };
        format!("{before}{}{after}", values.join(" / "))
    }
}
