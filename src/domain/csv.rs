//! Cells of CSV files.

/// Returns a text as a quoted cell.
///
/// Texts are those of strangers, such as the title of a ticket. A spreadsheet executes a cell that begins like a
/// formula, so such a cell gets an apostrophe in front of it.
pub fn cell(text: &str) -> String {
    let is_formula = |first: char| {
        matches!(
            first,
            '=' | '+' | '-' | '@' | '|' | '%' | '＝' | '＋' | '－' | '＠'
        )
    };
    // Spreadsheets skip white space and invisible characters in front of a formula.
    let visible = text.trim_start_matches(|ch: char| ch.is_whitespace() || ch.is_control());
    let is_indented = text.starts_with(['\t', '\r', '\n']);
    let prefix = match is_indented || visible.starts_with(is_formula) {
        true => "'",
        false => "",
    };
    format!("\"{prefix}{}\"", text.replace('"', "\"\""))
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
            ("  =1", "\"'  =1\""),
            ("\t=1", "\"'\t=1\""),
            ("\rx", "\"'\rx\""),
            ("＝1", "\"'＝1\""),
            ("=cmd|' /C calc'!A0", "\"'=cmd|' /C calc'!A0\""),
        ] {
            assert_eq!(cell(text), expected);
        }
    }
}
