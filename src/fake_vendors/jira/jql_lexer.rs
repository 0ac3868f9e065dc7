//! Lexer of JQL queries.

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
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        if matches!(first, '"' | '\'') {
            let (quoted, after) = read_quoted(&rest[1..], first).ok_or_else(|| {
                format!("Error in the JQL Query: The quoted string '{}' has not been completed. (line 1, character 1)", &rest[1..])
            })?;
            tokens.push(JqlToken::Quoted(quoted));
            rest = after;
        } else if let Some(symbol) = SYMBOLS.into_iter().find(|symbol| rest.starts_with(symbol)) {
            tokens.push(JqlToken::Symbol(symbol));
            rest = &rest[symbol.len()..];
        } else {
            let ends = |c: char| c.is_whitespace() || "()=,!~<>\"'&|".contains(c);
            let end = rest.find(ends).unwrap_or(rest.len());
            // At least one character, so that the loop always makes progress.
            let end = end.max(first.len_utf8());
            tokens.push(JqlToken::Word(rest[..end].to_owned()));
            rest = &rest[end..];
        }
        rest = rest.trim_start();
    }
    Ok(tokens)
}

fn read_quoted(text: &str, quote: char) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        if character == quote {
            return Some((value, &text[at + 1..]));
        }
        let unescaped = if character == '\\' {
            characters.next()?.1
        } else {
            character
        };
        value.push(unescaped);
    }
    None
}

pub(super) fn token_text(token: &JqlToken) -> &str {
    match token {
        JqlToken::Word(text) | JqlToken::Quoted(text) => text,
        JqlToken::Symbol(symbol) => symbol,
    }
}
