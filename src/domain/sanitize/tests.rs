use proptest::prelude::*;
use serde_json::{Value, json};

use super::log::MAX_TAIL_LINES;
use super::markdown::MAX_PLAIN_TEXT;
use super::*;
use crate::feedback::{self, PullRequestMeta};
use crate::ticket_command::TicketCommand;

const MARK: &str = " […]";

/// Texts with many characters that have a meaning in some output.
fn hostile_text() -> impl Strategy<Value = String> {
    const PIECES: &[&str] = &[
        "@everyone",
        "@",
        "<!channel>",
        "<@U1>",
        "<",
        "!",
        "[x](y)",
        "#1",
        "#",
        "fixes ",
        "Closes: ",
        "ENG-4",
        "/",
        "/agent-implement",
        "Agent-Implement",
        "<!-- agent-implement-meta {} -->",
        "<!--",
        "-->",
        "+++",
        "&",
        "*",
        "\\",
        "\n",
        "\r\n",
        "\r",
        "\t",
        " ",
        "\u{b}",
        "\u{85}",
        "\u{a0}",
        "\u{2028}",
        "\u{1b}[31m",
        "\u{1b}]8;;x\u{7}",
        "\u{1b}",
        "\u{1b}[",
        "\u{1b}]",
        "\u{1b}\\",
        "\u{9b}",
        "\u{9b}1;2m",
        "\u{90}",
        "\u{9c}",
        "\u{7}",
        "0;1",
        "m",
        "\u{0}",
        "\u{7f}",
        "\u{ad}",
        "\u{61c}",
        "\u{180e}",
        "\u{200b}",
        "\u{200d}",
        "\u{202e}",
        "\u{2060}",
        "\u{2066}",
        "\u{fe0f}",
        "\u{feff}",
        "\u{fff9}",
        "\u{e0041}",
        "\u{e0100}",
        "ä",
        "€",
        "𝄞",
        "👩",
        "word",
        "7",
    ];
    let piece = prop_oneof![
        4 => prop::sample::select(PIECES).prop_map(str::to_owned),
        1 => any::<char>().prop_map(String::from),
    ];
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

/// The result of every output for a text, within `max` bytes or characters.
fn outputs(text: &str, max: usize) -> Vec<(&'static str, String)> {
    let mut document = json!({ text: [{ "text": text }] });
    map_strings(&mut document, |text| strip_invisible(&text).into_owned());
    vec![
        ("markdown", markdown(text, max, MARK)),
        ("plain_text", plain_text(text)),
        ("slack_text", slack_text(text, max)),
        ("teams_text", teams_text(text, max)),
        ("log_line", log_line(text).into_owned()),
        ("log_tail", log_tail(text.lines())),
        ("single_line", single_line(text).into_owned()),
        ("strip_invisible", strip_invisible(text).into_owned()),
        ("map_strings", document.to_string()),
    ]
}

/// An independent list of characters that no output may contain. Only a text in Markdown has word joiners: its
/// own.
fn is_forbidden(output: &str, c: char) -> bool {
    let is_own = c == WORD_JOINER && matches!(output, "markdown" | "plain_text");
    let is_invisible = (c.is_control() && !matches!(c, '\n' | '\t'))
        || matches!(c, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
            | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}');
    is_invisible && !is_own
}

#[test]
fn every_invisible_character_is_stripped_by_every_output() {
    for c in '\0'..=char::MAX {
        assert_eq!(
            is_visible(c),
            !is_forbidden("", c) && !matches!(c, '\n' | '\t'),
            "{c:?}"
        );
    }
    let visible: String = ('\0'..=char::MAX).filter(|c| is_visible(*c)).collect();
    assert!(matches!(
        strip_invisible(&visible),
        std::borrow::Cow::Borrowed(_)
    ));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_one_output_strips_all_strip(text in hostile_text(), max in 10..300_usize) {
        for (output, sanitized) in outputs(&text, max) {
            let found = sanitized.chars().find(|c| is_forbidden(output, *c));
            prop_assert_eq!(found, None, "{} of {:?}: {:?}", output, text, sanitized);
        }
        let event = [0, 1, 2, 3, 31, 32, 33, 34, 35, 36]
            .map(|style| format!("\u{1b}[{style}m"))
            .iter()
            .fold(styled_log_event(&text).into_owned(), |event, style| event.replace(style, ""));
        prop_assert!(!event.contains(|c| is_forbidden("styled_log_event", c)), "{:?}", event);
    }

    #[test]
    fn outputs_are_within_their_limits(text in hostile_text(), max in 10..300_usize) {
        prop_assert!(markdown(&text, max, MARK).len() <= max);
        prop_assert!(slack_text(&text, max).chars().count() <= max);
        prop_assert!(Value::from(teams_text(&text, max)).to_string().len() <= max);
        prop_assert!(truncate(text.as_str(), max, MARK).len() <= max);
        prop_assert!(truncate_chars(text.as_str(), max, MARK).chars().count() <= max);
        let tail = log_tail(text.repeat(40).lines());
        prop_assert!(tail.len() <= MAX_TAIL_BYTES && tail.lines().count() <= MAX_TAIL_LINES);
        prop_assert!(log_line(&text.repeat(40)).len() <= MAX_LINE_BYTES);
        prop_assert!(!single_line(&text).contains('\n') && !log_line(&text).contains('\n'));
        // Plain text is limited before it is escaped.
        let plain = plain_text(&text.repeat(40)).replace("&lt;", "<").replace(WORD_JOINER, "");
        prop_assert!(plain.chars().count() <= MAX_PLAIN_TEXT);
    }

    #[test]
    fn sanitized_text_does_not_change_again(text in hostile_text()) {
        for sanitize in [
            |text: &str| markdown(text, usize::MAX, MARK),
            plain_text,
            |text: &str| log_line(text).into_owned(),
            |text: &str| styled_log_event(text).into_owned(),
            |text: &str| single_line(text).into_owned(),
            |text: &str| strip_invisible(text).into_owned(),
            |text: &str| truncate(text, 20, MARK).into_owned(),
            |text: &str| truncate_chars(text, 20, MARK).into_owned(),
        ] {
            let once = sanitize(&text);
            prop_assert_eq!(sanitize(&once), once.as_str(), "{:?}", text);
        }
    }

    #[test]
    fn comments_contain_no_mention_command_or_marker(text in hostile_text()) {
        for sanitized in [markdown(&text, usize::MAX, MARK), plain_text(&text)] {
            prop_assert_eq!(feedback::parse_command(&sanitized), None);
            prop_assert_eq!(TicketCommand::parse(&sanitized), None);
            prop_assert_eq!(PullRequestMeta::from_body(&sanitized), None);
            for harm in ["<!", "![", "@everyone", "@U1", "#1", "\n/", "\n+++", "\n /agent", "<!--"] {
                prop_assert!(!sanitized.contains(harm), "{harm:?} in {sanitized:?}");
            }
        }
        let slack = slack_text(&text, usize::MAX);
        prop_assert!(!slack.contains(['<', '>']), "{slack}");
    }

    #[test]
    fn visible_text_is_kept(text in "[a-zA-Z0-9äß€𝄞漢ع .,;:()'\n\t-]{0,200}") {
        prop_assert!(matches!(strip_invisible(&text), std::borrow::Cow::Borrowed(_)));
        prop_assert_eq!(slack_text(&text, usize::MAX), text.as_str());
        prop_assert_eq!(markdown(&text, usize::MAX, MARK).replace(WORD_JOINER, ""), text.trim());
    }
}

#[test]
fn strips_invisible_characters_and_escape_sequences() {
    for (raw, stripped) in [
        ("tab\tline\r\nline\rline\n", "tab\tline\nlineline\n"),
        ("a\u{202e}b\u{200b}c\u{7}d\u{ad}e\u{e0041}", "abcde"),
        ("\u{1b}[31mred\u{1b}[0m", "red"),
        ("\u{9b}1;31mred\u{9b}m", "red"),
        ("\u{1b}]8;;http://x\u{7}link\u{1b}]8;;\u{7}", "link"),
        ("\u{1b}]52;c;aGk=\u{1b}\\x", "x"),
        ("\u{9d}0;title\u{9c}x", "x"),
        ("\u{1b}(Bx\u{1b}7y\u{1b}cz", "xyz"),
        // An incomplete sequence hides no text.
        ("\u{1b}]0;one\ntwo\u{7}", "0;one\ntwo"),
        ("\u{1b}[1;2", "1;2"),
        ("\u{1b}[1;ä", "1;ä"),
        ("\u{1b}", ""),
        ("\u{1b}\u{200b}[31m", "[31m"),
        // Joined emoji become their members, joined letters stay.
        ("👩\u{200d}👧 ❤\u{fe0f} می\u{200c}خواهم", "👩👧 ❤ میخواهم"),
        ("e\u{301} a\u{2028}b\u{a0}c", "e\u{301} a\u{2028}b\u{a0}c"),
        ("", ""),
    ] {
        assert_eq!(strip_invisible(raw), stripped, "{raw:?}");
    }
}

#[test]
fn reveals_invisible_characters_of_code() {
    for (code, shown) in [
        ("let a = 1;\r\n\tb(\"ä\");\n", "let a = 1;\r\n\tb(\"ä\");\n"),
        ("\u{1b}]0;rm -r x\u{7}", "\\u{1b}]0;rm -r x\\u{7}"),
        ("a\rb", "a\\u{d}b"),
        (
            "/*\u{202e} } \u{2066}if admin",
            "/*\\u{202e} } \\u{2066}if admin",
        ),
        ("us\u{200b}er", "us\\u{200b}er"),
    ] {
        assert_eq!(reveal_invisible(code), shown);
        assert_eq!(reveal_invisible(shown), shown);
    }
}

#[test]
fn puts_text_on_one_line() {
    for (raw, line) in [
        ("a line", "a line"),
        (" a\r\n\tb\u{a0} c\u{85}d\u{2028}e ", "a b c d e"),
        ("a\u{200b} \u{200b}b", "a b"),
        ("\u{1b}[31m\n", ""),
        ("a b ", "a b"),
    ] {
        assert_eq!(single_line(raw), line, "{raw:?}");
    }
}

#[test]
fn sanitizes_log_lines() {
    for (raw, line) in [
        ("10%\r50%\r100%\r\n", "100%"),
        ("tab\tstays", "tab\tstays"),
        ("\u{1b}[31ma\u{202e}b\u{200b}c\u{7}", "abc"),
    ] {
        assert_eq!(log_line(raw), line, "{raw:?}");
    }
    let long = "ä".repeat(5_000);
    assert!(log_line(&long).len() <= MAX_LINE_BYTES && log_line(&long).ends_with(ELLIPSIS));
    let event = "\u{1b}[32m INFO\u{1b}[0m a\u{202e}b\u{9b}31mc\u{1b}[8md\u{1b}]8;;x\u{7}e\u{1b}[2Jf\u{1b}\n";
    assert_eq!(styled_log_event(event), "\u{1b}[32m INFO\u{1b}[0m abcdef\n");
}

#[test]
fn log_tail_is_the_end_of_a_log() {
    let long: String = (0..500)
        .map(|line| format!("\u{1b}[1mline {line}\r\n"))
        .collect();
    let tail = log_tail(long.lines());
    assert_eq!(tail.lines().count(), MAX_TAIL_LINES);
    assert!(tail.starts_with("line 440\n") && tail.ends_with("line 499"));
    let long_lines = format!("{0}\n{0}", "x".repeat(100_000));
    let tail = log_tail(long_lines.lines());
    assert!(tail.lines().count() == 2 && tail.len() <= 2_001, "{tail}");
    assert_eq!(log_tail("".lines()), "");
}

#[test]
fn plain_text_contains_no_mention_or_command() {
    for (raw, escaped) in [
        ("@everyone", "@|everyone"),
        ("fixes #1", "fixes #|1"),
        ("![x](y)", "!|[x](y)"),
        (
            "<!-- agent-implement-meta -->",
            "&lt;!|-- agent-implement-meta -->",
        ),
        ("<!channel> <@U1>", "&lt;!|channel> &lt;@|U1>"),
        (
            "a\n /agent-implement do\u{202e}it",
            "a\n |/agent-implement doit",
        ),
        ("+++ a\n+++ b", "|+++ a\n|+++ b"),
        ("a/b a+b a < b", "a/b a+b a &lt; b"),
        ("\u{1b}[31mred\u{1b}[0m", "red"),
    ] {
        assert_eq!(
            plain_text(raw).replace(WORD_JOINER, "|"),
            escaped,
            "{raw:?}"
        );
    }
    let long = plain_text(&"x".repeat(9_000));
    assert!(long.ends_with("x […]") && long.chars().count() == MAX_PLAIN_TEXT);
}

#[test]
fn markdown_contains_no_mention_reference_command_or_marker() {
    for (raw, safe) in [
        (
            "@everyone @acme/owners a @ b",
            "@|everyone @|acme/owners a @ b",
        ),
        ("Done @octocat. Fixes #12", "Done @|octocat. Fix|es #|12"),
        (
            "closes: owner/repo#3, RESOLVING ENG-4",
            "clos|es: owner/repo#|3, RESOLV|ING ENG-4",
        ),
        ("We fixed the login.", "We fixed the login."),
        (
            "![x](y) <img src=x> </p> <?x a < b",
            "!|[x](y) <|img src=x> <|/p> <|?x a < b",
        ),
        ("a <!-- hidden -->b", "a  b"),
        ("<!-<!-- x -->- y -->", "<|!- - y -->"),
        ("@<!-- -->octocat", "@ octocat"),
        ("a <!-- open", "a <|!-- open"),
        ("<!channel> <@U1>", "<|!channel> <@|U1>"),
        (
            "/agent-implement do more\n\t/deploy a/b",
            "|/agent|-implement do more\n\t|/deploy a/b",
        ),
        (
            "AGENT-Implement-Dispatch: 1",
            "AGENT|-Implement-Dispatch: 1",
        ),
        ("+++ more\n++ b\n+ c", "|+++ more\n++ b\n+ c"),
        ("@\u{200b}everyone #\u{2060}1", "@|everyone #|1"),
    ] {
        assert_eq!(
            markdown(raw, 1_000, MARK).replace(WORD_JOINER, "|"),
            safe,
            "{raw:?}"
        );
    }
}

#[test]
fn markdown_keeps_formatting() {
    let plan = "# Plan\n\n1. Make `Vec<u8>` of it; a < b\n2. Ask nobody\n\n```rust\n#[test]\n```";
    let sanitized = markdown(plan, 1_000, MARK);
    assert_eq!(sanitized.replace(WORD_JOINER, ""), plan);
    assert!(sanitized.contains("# Plan\n\n1. Make") && sanitized.contains("a < b"));
    let long = markdown(&"ä".repeat(1_000), 1_000, MARK);
    assert!(long.len() <= 1_000 && long.ends_with(MARK));
}

#[test]
fn truncates_at_a_character_boundary() {
    const TEXT: &str = "ää€𝄞";
    for (max, to_bytes, to_chars) in [
        (0, "", ""),
        (1, "", "…"),
        (2, "ä", "ä…"),
        (3, "…", "ää…"),
        (6, "ä…", TEXT),
        (8, "ää…", TEXT),
        (11, TEXT, TEXT),
    ] {
        assert_eq!(truncate(TEXT, max, ELLIPSIS), to_bytes, "{max}");
        assert_eq!(truncate_chars(TEXT, max, ELLIPSIS), to_chars, "{max}");
    }
}

/// Repeats of a text that begins something take linear time: a quadratic search would take minutes.
#[test]
fn sanitizing_takes_linear_time() {
    const BYTES: usize = 1 << 17;
    let started = std::time::Instant::now();
    for piece in [
        "<!--", "\u{90}", "\u{1b}]", "\u{1b}[", "\u{9b}1", "fix ", "fix.", "@", "agent-",
        "\u{200b}", "\r",
    ] {
        let text = piece.repeat(BYTES / piece.len());
        for (output, sanitized) in outputs(&text, BYTES) {
            assert!(sanitized.len() <= 8 * BYTES, "{output} of {piece:?}");
        }
    }
    let seconds = started.elapsed().as_secs();
    assert!(seconds < 30, "{seconds} seconds");
}

#[test]
fn maps_strings_and_names_of_any_depth() {
    let mut value = json!({"a": ["b", {"c": "d"}], "n": 1, "t": true, "x": null});
    map_strings(&mut value, |text| text.to_uppercase());
    assert_eq!(
        value,
        json!({"A": ["B", {"C": "D"}], "N": 1, "T": true, "X": null})
    );
    let mut deep = Value::from("x");
    for _ in 0..10_000 {
        deep = Value::Array(vec![deep]);
    }
    map_strings(&mut deep, |_| "y".to_owned());
    while let Value::Array(mut items) = deep {
        deep = items.remove(0);
    }
    assert_eq!(deep, "y");
}
