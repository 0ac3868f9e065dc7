//! JQL queries. The operator's clause is always put in parentheses, so that an `OR` in it cannot affect
//! the rest of the query.

use super::fields::FieldId;
use domain::stage::Stage;

/// Stages in which an issue waits for a run or for people, or has a run. Only these are polled.
pub(super) const FLAGGED_STAGES: [Stage; 6] = [
    Stage::Triggered,
    Stage::Planning,
    Stage::PlanComplete,
    Stage::PlanReady,
    Stage::Implementing,
    Stage::NeedsInput,
];

/// Those of [`FLAGGED_STAGES`] whose values not every status field has.
pub(super) const OPTIONAL_STAGES: [Stage; 2] = [Stage::PlanReady, Stage::NeedsInput];

/// Builds the query for open issues of a clause with one of `FLAGGED_STAGES`, of the optional ones only with these.
pub(super) fn flagged_issues(clause: &str, status: FieldId, optional: &[Stage]) -> String {
    let is_listed = |stage: &&Stage| !OPTIONAL_STAGES.contains(stage) || optional.contains(stage);
    let values: Vec<String> = FLAGGED_STAGES
        .iter()
        .filter(is_listed)
        .filter_map(|stage| stage.jira_status())
        .map(quoted)
        .collect();
    let values = values.join(", ");
    open(clause, &format!("{} in ({values})", status.jql_name()))
}

/// Builds the query for open issues of a clause with any status. Jira rejects a query with an unknown
/// option, and a field without the options for planning is valid.
pub(super) fn issues_with_any_status(clause: &str, status: FieldId) -> String {
    open(clause, &format!("{} is not EMPTY", status.jql_name()))
}

/// Builds the query for the issue of this id if it matches a clause.
pub(super) fn issue_by_id(clause: &str, id: u64) -> String {
    format!("id = {id} AND ({clause})")
}

/// Builds the query for issues with a value in a field.
pub(super) fn issues_with_value(field: FieldId) -> String {
    format!("{} is not EMPTY", field.jql_name())
}

fn open(clause: &str, condition: &str) -> String {
    format!("({clause}) AND {condition} AND statusCategory != Done ORDER BY created ASC")
}

fn quoted(value: &str) -> String {
    format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn puts_clauses_in_parentheses() {
        let status = FieldId::parse("customfield_10050").unwrap();
        assert_eq!(
            flagged_issues("project = A OR project = B", status, &[Stage::NeedsInput]),
            "(project = A OR project = B) AND cf[10050] in (\"Ready\", \"Planning\", \
             \"Plan Approved\", \"Implementing\", \"Needs Input\") AND statusCategory != Done ORDER BY created ASC"
        );
        assert_eq!(
            issues_with_any_status("project = A", status),
            "(project = A) AND cf[10050] is not EMPTY AND statusCategory != Done ORDER BY created ASC"
        );
        assert_eq!(
            issue_by_id("project = A OR project = B", 10001),
            "id = 10001 AND (project = A OR project = B)"
        );
        assert_eq!(quoted(r#"a"b\c"#), r#""a\"b\\c""#);
    }
}
