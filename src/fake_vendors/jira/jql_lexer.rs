//! The words of a query.

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum JqlToken {
    Word(String),
    Quoted(String),
    Symbol(&'static str),
}

const SYMBOLS: [&str; 14] = [
    "&&", "||", "!=", "!~", "<=", ">=", "(", ")", ",", "=", "~", "<", ">", "!",
];

pub(super) fn tokenize(text: &str) -> Result<Vec<JqlToken>, String> {
    let mut found = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        if matches!(first, '"' | '\'') {
            let (quoted, after) = quoted(&rest[1..], first).ok_or_else(|| {
                format!("Error in the JQL Query: The quoted string '{}' has not been completed. (line 1, character 1)", &rest[1..])
            })?;
            found.push(JqlToken::Quoted(quoted));
            rest = after;
        } else if let Some(symbol) = SYMBOLS.into_iter().find(|symbol| rest.starts_with(symbol)) {
            found.push(JqlToken::Symbol(symbol));
            rest = &rest[symbol.len()..];
        } else {
            let ends = |c: char| c.is_whitespace() || "()=,!~<>\"'&|".contains(c);
            let end = rest.find(ends).unwrap_or(rest.len());
            // A lone character of the set above is a word, so that something is always read.
            let end = end.max(first.len_utf8());
            found.push(JqlToken::Word(rest[..end].to_owned()));
            rest = &rest[end..];
        }
        rest = rest.trim_start();
    }
    Ok(found)
}

fn quoted(text: &str, mark: char) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        if character == mark {
            return Some((value, &text[at + 1..]));
        }
        let kept = if character == '\\' {
            characters.next()?.1
        } else {
            character
        };
        value.push(kept);
    }
    None
}

pub(super) fn token_text(token: &JqlToken) -> &str {
    match token {
        JqlToken::Word(text) | JqlToken::Quoted(text) => text,
        JqlToken::Symbol(symbol) => symbol,
    }
}
