//! Audit entries as lines of a CSV file.

use super::AuditEntry;
use crate::csv::cell;

/// First line of the file.
pub const HEADER: &str = "seq,at,actor,action,target,detail,hash\r\n";

/// Returns the line of an entry. Its parts are text of strangers.
pub fn line(entry: &AuditEntry) -> String {
    let (seq, at) = (entry.seq.to_string(), entry.at.to_string());
    let cells = [
        &seq,
        &at,
        &entry.actor,
        &entry.action,
        &entry.target,
        &entry.detail,
        &entry.hash,
    ];
    let cells = cells.map(|text| cell(text));
    format!("{}\r\n", cells.join(","))
}
