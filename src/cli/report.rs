//! `agent-implement report`: numbers of a month by project, to be pasted.

use std::fmt::{self, Write};
use std::process::ExitCode;

use anyhow::{Context, anyhow};

use domain::csv::cell;
use domain::sanitize::single_line;
use domain::scoreboard::{Day, Dimension};
use domain::usage::Month;
use engine::clock::Clock;
use server::{ScoreColumn, ScoreView, ScoreboardView};

use super::local_service::{ServiceLocation, ServiceOrStore, connect_or_open};

/// Arguments of `report`.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(super) struct ReportArgs {
    /// Month in UTC. Default: the last complete month.
    #[arg(long, value_name = "YYYY-MM", value_parser = parse_month)]
    month: Option<Month>,
    /// Format of the output.
    #[arg(long, value_enum, default_value_t = ReportFormat::Md)]
    format: ReportFormat,
    #[command(flatten)]
    pub(super) location: ServiceLocation,
}

const HELP: &str = "\
A pull request counts in the month in which it was opened, with its current state; a run counts in the month in \
which it ended. The JSON is the response of GET /api/scoreboard.

Works while the service runs (over DATA_DIR/control.sock, as its user or root) and while it is stopped.";

/// Format of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum ReportFormat {
    /// Markdown.
    Md,
    /// JSON.
    Json,
    /// Comma-separated values.
    Csv,
}

fn parse_month(text: &str) -> Result<Month, String> {
    Month::parse(text).ok_or_else(|| "must be YYYY-MM".to_owned())
}

/// Prints the report of a month.
pub(super) async fn report(arguments: ReportArgs) -> anyhow::Result<ExitCode> {
    let now = Clock::System.now();
    let month = arguments.month.unwrap_or_else(|| {
        let first = Day::of(now).month_start();
        Month::of(Day(first.0.saturating_sub(1)).start())
    });
    let from = Day::parse(&format!("{month}-01")).context("the month is out of range")?;
    let to = from.next_month();
    let board = match connect_or_open(arguments.location.data_dir()).await? {
        ServiceOrStore::Running(service) => {
            let path = format!("/api/scoreboard?by=team&from={from}&to={to}");
            let body = service.get(&path).await?;
            let body = body.ok_or_else(|| {
                anyhow!("the running service is older than this program; restart it first")
            })?;
            serde_json::from_value(body)?
        }
        ServiceOrStore::Stopped(store) => {
            store.read(|tx| server::scoreboard(tx, Dimension::Team, from, to, now))?
        }
    };
    let text = match arguments.format {
        ReportFormat::Md => Markdown {
            month,
            board: &board,
            today: Day::of(now),
        }
        .to_string(),
        ReportFormat::Json => format!("{:#}\n", serde_json::to_value(&board)?),
        ReportFormat::Csv => csv(month, &board),
    };
    print!("{text}");
    Ok(ExitCode::SUCCESS)
}

fn csv(month: Month, board: &ScoreboardView) -> String {
    let mut lines = vec![format!("Month,Project,{}", ScoreColumn::csv_heads())];
    for (name, row) in board.named_rows() {
        let (name, values) = (cell(&single_line(&name)), ScoreColumn::csv_values(row));
        lines.push(format!("{month},{name},{values}"));
    }
    lines.join("\r\n") + "\r\n"
}

struct Markdown<'b> {
    month: Month,
    board: &'b ScoreboardView,
    today: Day,
}

impl fmt::Display for Markdown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (month, total) = (self.month, &self.board.total);
        writeln!(f, "# Agent Implement in {month}\n")?;
        writeln!(f, "{}\n", summary(total))?;
        let heads = ScoreColumn::ALL.map(|column| column.head());
        writeln!(f, "| Project | {} |", heads.join(" | "))?;
        writeln!(f, "|---|{}", "---:|".repeat(heads.len()))?;
        for (name, row) in self.board.named_rows() {
            let name = single_line(&name).replace('|', "\\|");
            let cells = ScoreColumn::ALL.map(|column| column.cell(row));
            writeln!(f, "| {name} | {} |", cells.join(" | "))?;
        }
        if self.board.rows_left_out > 0 {
            writeln!(
                f,
                "\n{} more projects are in the total only.",
                self.board.rows_left_out
            )?;
        }
        let failures = total.failures_by_reason.iter();
        let failures = failures.map(|(reason, count)| (failure_title(reason), *count));
        write_counts(f, "Failed runs by reason", "Runs", failures.collect())?;
        let waits = total.waits_by_reason.iter();
        let waits = waits.map(|(reason, count)| (reason.title().to_owned(), *count));
        write_counts(f, "Waits by reason", "Times", waits.collect())?;
        writeln!(
            f,
            "\nRuns count in the month in which they ended. Pull requests count in the month in which they were opened, \
             with their state of {}. Merged share: merged ÷ (merged + closed + open for 7 days). Hours begin with the \
             request on the ticket.",
            self.today
        )
    }
}

fn summary(total: &ScoreView) -> String {
    let mut text = format!(
        "{} runs ended. {} pull requests were opened, {} of them are merged",
        total.runs, total.pull_requests, total.merged
    );
    // Writing to a string cannot fail.
    if let Some(share) = total.merged_share {
        let _ = write!(text, " ({:.0} % of the settled ones)", share * 100.0);
    }
    text.push('.');
    if let Some(cost) = total.cost_usd {
        let _ = write!(text, " The runs cost ${cost:.2}");
        if let Some(per_merged) = total.cost_per_merged_usd {
            let _ = write!(text, ", ${per_merged:.2} per merged pull request");
        }
        text.push('.');
    }
    text
}

/// Returns the name of a failure code or timeout reason in texts for people: `VERIFY_FAILED` becomes `Verify failed`.
fn failure_title(reason: &str) -> String {
    let mut title = reason.replace(['_', '-'], " ").to_lowercase();
    if let Some(first) = title.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    title
}

/// Writes a table of counts, highest first. Nothing if there are none.
fn write_counts(
    f: &mut fmt::Formatter<'_>,
    title: &str,
    unit: &str,
    mut counts: Vec<(String, u64)>,
) -> fmt::Result {
    if counts.is_empty() {
        return Ok(());
    }
    counts.sort_by(|(a_name, a), (b_name, b)| b.cmp(a).then_with(|| a_name.cmp(b_name)));
    writeln!(f, "\n## {title}\n\n| Reason | {unit} |\n|---|---:|")?;
    let mut rows = counts.iter();
    rows.try_for_each(|(name, count)| writeln!(f, "| {name} | {count} |"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn board() -> ScoreboardView {
        let row = |key: &str, fields: Value| {
            let mut row = json!({
                "key": key, "runs": 0, "pullRequests": 0, "merged": 0, "closed": 0, "open": 0, "staleOpen": 0,
                "mergedShare": null, "reviewRounds": null, "hoursToPullRequest": null, "hoursToMerge": null,
                "costUsd": null, "costPerMergedUsd": null, "humanCommitsAfter": null, "failuresByReason": {},
                "waitsByReason": {},
            });
            for (name, value) in fields.as_object().unwrap() {
                row[name] = value.clone();
            }
            row
        };
        let full = json!({"runs": 12, "pullRequests": 5, "merged": 3, "closed": 1, "open": 1, "mergedShare": 0.75,
            "reviewRounds": 1.2, "hoursToPullRequest": {"p50": 0.5, "p95": 3.25}, "hoursToMerge": {"p50": 20.0, "p95": 70.04},
            "costUsd": 12.5, "costPerMergedUsd": 4.17, "humanCommitsAfter": 0.4,
            "failuresByReason": {"NO_CHANGES": 1, "VERIFY_FAILED": 3}, "waitsByReason": {"concurrency": 9}});
        let body = json!({
            "from": "2026-11-01T00:00:00.000Z", "to": "2026-12-01T00:00:00.000Z", "by": "team", "rowsLeftOut": 0,
            "rows": [row("ENG", full.clone()), row("=A|\"B\"", json!({"runs": 1}))], "total": row("", full),
        });
        serde_json::from_value(body).unwrap()
    }

    #[test]
    fn markdown_can_be_pasted() {
        let markdown = Markdown {
            month: Month::parse("2026-11").unwrap(),
            board: &board(),
            today: Day::parse("2026-12-03").unwrap(),
        };
        let text = markdown.to_string();
        let lines = [
            "# Agent Implement in 2026-11",
            "| Project | Runs | Pull requests | Merged | Closed | Open | Merged share | Review rounds | Hours to pull \
             request (p50 / p95) | Hours to merge (p50 / p95) | Cost | Cost per merged | Commits by people | Failed runs |",
            "12 runs ended. 5 pull requests were opened, 3 of them are merged (75 % of the settled ones). The runs cost \
             $12.50, $4.17 per merged pull request.",
            "| ENG | 12 | 5 | 3 | 1 | 1 | 75 % | 1.2 | 0.5 / 3.2 | 20.0 / 70.0 | $12.50 | $4.17 | 0.4 | 4 |",
            "| =A\\|\"B\" | 1 | 0 | 0 | 0 | 0 | – | – | – | – | – | – | – | 0 |",
            "| Total | 12 | 5 | 3 | 1 | 1 | 75 % | 1.2 | 0.5 / 3.2 | 20.0 / 70.0 | $12.50 | $4.17 | 0.4 | 4 |",
            "| Verify failed | 3 |\n| No changes | 1 |",
            "## Waits by reason\n\n| Reason | Times |\n|---|---:|\n| At capacity | 9 |",
            "with their state of 2026-12-03.",
        ];
        for line in lines {
            assert!(text.contains(line), "{line}\n{text}");
        }
        let columns = |line: &str| line.replace("\\|", "").matches('|').count();
        let table: Vec<usize> = text
            .lines()
            .filter(|line| line.starts_with('|'))
            .take(5)
            .map(columns)
            .collect();
        assert_eq!(table, [15; 5]);
    }

    #[test]
    fn csv_has_one_line_per_project_and_no_formula() {
        let text = csv(Month::parse("2026-11").unwrap(), &board());
        let lines: Vec<&str> = text.split_terminator("\r\n").collect();
        assert_eq!(lines.len(), 4);
        assert_eq!(
            lines[0],
            "Month,Project,Runs,Pull requests,Merged,Closed,Open,Merged share,Review rounds,Hours to pull request p50,\
             Hours to pull request p95,Hours to merge p50,Hours to merge p95,Cost,Cost per merged,Commits by people,\
             Failed runs"
        );
        assert_eq!(
            lines[1],
            "2026-11,\"ENG\",12,5,3,1,1,75,1.2,0.5,3.2,20.0,70.0,12.50,4.17,0.4,4"
        );
        assert_eq!(lines[2], "2026-11,\"'=A|\"\"B\"\"\",1,0,0,0,0,,,,,,,,,,0");
        assert!(lines[3].starts_with("2026-11,\"Total\",12,"));
    }
}
