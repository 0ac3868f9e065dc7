//! Cells of CSV files for spreadsheets.

/// Returns a text as a quoted cell that no spreadsheet reads as a formula.
///
/// Texts of strangers, such as the title of a ticket, may begin like a formula; an apostrophe in front makes it text.
/// A spreadsheet that separates cells by semicolons or tabs splits a cell there, because the quotes are then not at
/// the ends of its cells.
pub fn cell(text: &str) -> String {
    let mut cell = String::with_capacity(text.len() + 2);
    cell.push('"');
    if text.starts_with(['\t', '\r', '\n']) {
        cell.push('\'');
    }
    let mut is_at_start = true;
    for ch in text.chars() {
        if is_at_start && begins_formula(ch) {
            cell.push('\'');
        }
        // Spreadsheets skip white space, quotes and invisible characters in front of a formula.
        let is_skipped = ch == '"' || ch.is_whitespace() || ch.is_control();
        is_at_start = matches!(ch, ';' | '\t' | '\r' | '\n') || (is_at_start && is_skipped);
        if ch == '"' {
            cell.push('"');
        }
        cell.push(ch);
    }
    cell.push('"');
    cell
}

fn begins_formula(first: char) -> bool {
    matches!(
        first,
        '=' | '+' | '-' | '@' | '|' | '%' | '＝' | '＋' | '－' | '＠'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_quoted_and_no_formula() {
        for (text, expected) in [
            ("ENG-1", "\"ENG-1\""),
            ("", "\"\""),
            ("a \"b\", c", "\"a \"\"b\"\", c\""),
            ("=1+1", "\"'=1+1\""),
            ("+49", "\"'+49\""),
            ("-2", "\"'-2\""),
            ("@SUM(A1)", "\"'@SUM(A1)\""),
            ("  =1", "\"  '=1\""),
            ("\t=1", "\"'\t'=1\""),
            ("\rx", "\"'\rx\""),
            ("＝1", "\"'＝1\""),
            ("a; b", "\"a; b\""),
            ("a-b; c=d", "\"a-b; c=d\""),
            ("q=;=1+cmd|' /C calc'!A0;", "\"q=;'=1+cmd|' /C calc'!A0;\""),
            ("x; \"=1\"", "\"x; \"\"'=1\"\"\""),
            ("=cmd|' /C calc'!A0", "\"'=cmd|' /C calc'!A0\""),
        ] {
            assert_eq!(cell(text), expected);
        }
    }
}
