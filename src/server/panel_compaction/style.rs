//! Compaction of style sheets: comments, and spaces that separate nothing, are left out. Strings stay as they are.

use super::string_length;

/// Characters around which spaces mean nothing.
const SEPARATORS: [char; 5] = ['{', '}', ';', ',', '>'];

/// Compacts a style sheet. `None` if its meaning could change: if it has an escape or an address without quotes.
pub(crate) fn compact_styles(source: &str) -> Option<String> {
    let mut compact = String::with_capacity(source.len());
    let (mut rest, mut has_space) = (source, false);
    while let Some(first) = rest.chars().next() {
        let length = match first {
            _ if first.is_ascii_whitespace() => {
                has_space = true;
                rest = &rest[1..];
                continue;
            }
            '/' if rest.starts_with("/*") => {
                has_space = true;
                rest = &rest[rest.find("*/")? + 2..];
                continue;
            }
            '"' | '\'' => string_length(rest, first as u8)?,
            '\\' => return None,
            _ if compact.ends_with("url(") => return None,
            _ => first.len_utf8(),
        };
        if has_space && needs_space(&compact, first) {
            compact.push(' ');
        }
        has_space = false;
        // A closing brace ends the declaration before it as well.
        if first == '}' && compact.ends_with(';') {
            compact.pop();
        }
        compact.push_str(&rest[..length]);
        rest = &rest[length..];
    }
    Some(compact)
}

/// Whether the space between two parts of a rule has a meaning. Within a selector, one before a colon has.
fn needs_space(before: &str, next: char) -> bool {
    let Some(last) = before.chars().next_back() else {
        return false;
    };
    let is_empty_value = last == ':' && next == ';';
    is_empty_value || !(last == ':' || SEPARATORS.contains(&last) || SEPARATORS.contains(&next))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compacts_without_changing_the_meaning() {
        for (source, expected) in [
            (
                "/* One.\n Two. */\n.a, .b :is(c) > d {\n\ttop: calc(1px + 2px); content: \" x\"; /* y */\n}\n.c { d: e }\n",
                ".a,.b :is(c)>d{top:calc(1px + 2px);content:\" x\"}.c{d:e}",
            ),
            (
                "a::after { content: \", \"; quotes: '{ ' \"; }\"; --x: ; }",
                "a::after{content:\", \";quotes:'{ ' \"; }\";--x: }",
            ),
            (
                "a/* b */c { margin: 0\n\tauto } @media (width > 9em) and (hover) { b { c: d; } }",
                "a c{margin:0 auto}@media (width>9em) and (hover){b{c:d}}",
            ),
        ] {
            assert_eq!(
                compact_styles(source).as_deref(),
                Some(expected),
                "{source}"
            );
        }
        for source in [
            ".a\\:b { c: d }",
            "a { b: url(x;  y) }",
            "a { content: \"x\ny\" }",
            "a { b: c } /* unended",
        ] {
            assert_eq!(compact_styles(source), None, "{source}");
        }
    }
}
