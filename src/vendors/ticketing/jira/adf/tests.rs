//! Tests of the conversion between Markdown and ADF.

use super::*;
use proptest::prelude::*;

fn content(markdown: &str) -> Value {
    from_markdown(markdown)["content"].clone()
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn marked(text: &str, marks: Value) -> Value {
    json!({"type": "text", "text": text, "marks": marks})
}

#[test]
fn converts_blocks_to_nodes() {
    let rows = [
        ("Hello", json!([paragraph(vec![text("Hello")])])),
        (
            "## Plan",
            json!([{"type": "heading", "attrs": {"level": 2}, "content": [text("Plan")]}]),
        ),
        (
            "```rust\nfn x() {}\n\n  y\n```\nafter",
            json!([
                {"type": "codeBlock", "attrs": {"language": "rust"}, "content": [text("fn x() {}\n\n  y")]},
                paragraph(vec![text("after")]),
            ]),
        ),
        (
            "````\n```\n````",
            json!([{"type": "codeBlock", "content": [text("```")]}]),
        ),
        ("```\n```", json!([{"type": "codeBlock"}])),
        (
            "a\n\n---\n\nb",
            json!([paragraph(vec![text("a")]), {"type": "rule"}, paragraph(vec![text("b")])]),
        ),
        (
            "> one\n> two\n>\n> three",
            json!([{"type": "blockquote", "content": [
                paragraph(vec![text("one"), json!({"type": "hardBreak"}), text("two")]),
                paragraph(vec![text("three")]),
            ]}]),
        ),
        (
            "Blocked:\n- .env: secret\n- key",
            json!([
                paragraph(vec![text("Blocked:")]),
                {"type": "bulletList", "content": [
                    {"type": "listItem", "content": [paragraph(vec![text(".env: secret")])]},
                    {"type": "listItem", "content": [paragraph(vec![text("key")])]},
                ]},
            ]),
        ),
        (
            "> - a\n>   1. b\n>\n> ```\n> x\n>   y\n> ```\n>\n> ## c\n> > d",
            json!([{"type": "blockquote", "content": [
                paragraph(vec![text("- a"), json!({"type": "hardBreak"}), text("1. b")]),
                paragraph(vec![
                    marked("x", json!([{"type": "code"}])),
                    json!({"type": "hardBreak"}),
                    marked("  y", json!([{"type": "code"}])),
                ]),
                paragraph(vec![text("c")]),
                paragraph(vec![text("d")]),
            ]}]),
        ),
        (
            "> -\n>\n> a",
            json!([{"type": "blockquote", "content": [paragraph(vec![text("a")])]}]),
        ),
        (
            "- # a\n  > b\n\n  ---",
            json!([{"type": "bulletList", "content": [{"type": "listItem", "content": [
                paragraph(vec![text("a")]),
                paragraph(vec![text("b")]),
            ]}]}]),
        ),
        (
            "a\n\n    Vec&lt;u8>",
            json!([
                paragraph(vec![text("a")]),
                {"type": "codeBlock", "content": [text("Vec<u8>")]},
            ]),
        ),
        (
            "<p>\na <!-- b\nc -->\n\nd",
            json!([
                paragraph(vec![text("<p>"), json!({"type": "hardBreak"}), text("a")]),
                paragraph(vec![text("d")]),
            ]),
        ),
        (
            "+++ A `b`\n\n- c\n\n+++\n\n+++ d\n\n",
            json!([
                {"type": "expand", "attrs": {"title": "A `b`"}, "content": [
                    {"type": "bulletList", "content": [
                        {"type": "listItem", "content": [paragraph(vec![text("c")])]},
                    ]},
                ]},
                {"type": "expand", "attrs": {"title": "d"}, "content": [paragraph(Vec::new())]},
            ]),
        ),
        (
            "3. a\n   - b\n4. c",
            json!([{"type": "orderedList", "attrs": {"order": 3}, "content": [
                {"type": "listItem", "content": [
                    paragraph(vec![text("a")]),
                    {"type": "bulletList", "content": [
                        {"type": "listItem", "content": [paragraph(vec![text("b")])]},
                    ]},
                ]},
                {"type": "listItem", "content": [paragraph(vec![text("c")])]},
            ]}]),
        ),
    ];
    for (markdown, expected) in rows {
        assert_eq!(content(markdown), expected, "{markdown}");
    }
}

#[test]
fn converts_inline_markup_to_marks() {
    let href = |href: &str| json!({"type": "link", "attrs": {"href": href}});
    let (strong, em, code) = (
        json!({"type": "strong"}),
        json!({"type": "em"}),
        json!({"type": "code"}),
    );
    let rows = [
        (
            "a **b** c",
            json!([text("a "), marked("b", json!([strong])), text(" c")]),
        ),
        (
            "*a* _b_",
            json!([
                marked("a", json!([em])),
                text(" "),
                marked("b", json!([em]))
            ]),
        ),
        (
            "**a *b***",
            json!([
                marked("a ", json!([strong])),
                marked("b", json!([strong, em]))
            ]),
        ),
        (
            "snake_case_name 2 * 3 * 4",
            json!([text("snake_case_name 2 * 3 * 4")]),
        ),
        ("`a*b*`", json!([marked("a*b*", json!([code]))])),
        ("**`x`**", json!([marked("x", json!([code]))])),
        (
            "see [#7](https://h/7).",
            json!([
                text("see "),
                marked("#7", json!([href("https://h/7")])),
                text(".")
            ]),
        ),
        ("[x](javascript:y)", json!([text("[x](javascript:y)")])),
        (
            "![x](y.png) <a::b> \\<!-- c -->",
            json!([text("![x](y.png) <a::b> <!-- c -->")]),
        ),
        (
            "[![a](https://h/a.svg)](https://h) <a@b.c> [](https://[::1]:8)",
            json!([
                marked("a", json!([href("https://h")])),
                text(" "),
                marked("a@b.c", json!([href("mailto:a@b.c")])),
                text(" "),
                marked("https://[::1]:8", json!([href("https://[::1]:8")])),
            ]),
        ),
        ("[todo]: fix", json!([text("[todo]: fix")])),
        (
            "https://h/__init__.py~ https://h/_a b_",
            json!([
                marked(
                    "https://h/__init__.py~",
                    json!([href("https://h/__init__.py~")])
                ),
                text(" "),
                marked("https://h/_a", json!([href("https://h/_a")])),
                text(" b_"),
            ]),
        ),
        (
            "_https://h/a\\_b_",
            json!([marked(
                "https://h/a_b",
                json!([{"type": "em"}, href("https://h/a_b")])
            )]),
        ),
        (
            "at https://h/a_b_c, ok",
            json!([
                text("at "),
                marked("https://h/a_b_c", json!([href("https://h/a_b_c")])),
                text(", ok")
            ]),
        ),
        (
            "a  \nb\\\nc",
            json!([
                text("a"), {"type": "hardBreak"}, text("b"), {"type": "hardBreak"}, text("c")
            ]),
        ),
        (
            "&lt;b> @\u{2060}all \\*x\\* <!-- hidden -->",
            json!([text("<b> @all *x* ")]),
        ),
        ("**open `and", json!([text("**open `and")])),
    ];
    for (markdown, expected) in rows {
        assert_eq!(content(markdown)[0]["content"], expected, "{markdown}");
    }
}

#[test]
fn flattens_deep_lists_to_lines() {
    let lines: Vec<String> = (1..=7)
        .map(|depth| format!("{}- {depth}", "  ".repeat(depth - 1)))
        .collect();
    let mut node = &content(&lines.join("\n"))[0];
    for depth in 1..5 {
        let item = &node["content"][0]["content"];
        assert_eq!(item[0]["content"], json!([text(&depth.to_string())]));
        node = &item[1];
    }
    let line_break = json!({"type": "hardBreak"});
    let deepest = json!([paragraph(vec![
        text("5"),
        line_break.clone(),
        text("- 6"),
        line_break,
        text("- 7"),
    ])]);
    assert_eq!(node["content"][0]["content"], deepest);
}

#[test]
fn truncates_a_long_text_with_a_notice() {
    for text in [
        "x".repeat(40_000),
        "a\n".repeat(30_000),
        "- **b**\n".repeat(9_000),
        "\"".repeat(40_000),
    ] {
        let document = from_markdown(&text);
        let size = document.to_string().chars().count();
        assert!(size <= LIMIT && size > LIMIT / 2, "{size}");
        assert!(document.to_string().contains("[… cut"));
    }
}

#[test]
fn truncates_at_the_last_character_that_fits() {
    let document = from_markdown(&format!(
        "{}{}",
        "- **b**\n".repeat(200),
        "x".repeat(20_000)
    ));
    let size = document.to_string().chars().count();
    assert!(size <= LIMIT && size > LIMIT - 10, "{size}");
}

#[test]
fn a_long_address_is_not_repeated_without_limit() {
    let href = format!("https://h/{}", "x".repeat(1_900));
    let document = from_markdown(&format!("[{}]({href})", "a*b*".repeat(7_000)));
    check(&document);
    assert!(document.to_string().contains("[… cut"));
}

#[test]
fn parses_hostile_text_in_bounded_time() {
    let started = std::time::Instant::now();
    check(&from_markdown(&format!("- a{}b", "\n".repeat(32_000))));
    // The worst case: each line is compared with each open list or quote.
    for open in ["- ", "> ", "1. "] {
        let lines = "a\n".repeat(8_000);
        check(&from_markdown(&format!(
            "{}{lines}",
            open.repeat(16_000 / open.len())
        )));
    }
    for mark in [
        "*a", "_a ", "[", "`a``", "<!--", "~~a", "![", "> ", "- ", "**a*b",
    ] {
        check(&from_markdown(&mark.repeat(16_000)));
    }
    assert!(started.elapsed().as_secs() < 20, "{:?}", started.elapsed());
}

#[test]
fn converts_a_document_to_markdown() {
    let document = json!({"type": "doc", "version": 1, "content": [
        {"type": "heading", "attrs": {"level": 2}, "content": [text("Goal")]},
        {"type": "paragraph", "content": [
            text("Greet "), marked("everyone", json!([{"type": "strong"}])),
            {"type": "hardBreak"}, marked("code", json!([{"type": "code"}])), text(" by "),
            {"type": "mention", "attrs": {"id": "1", "text": "@Ada"}},
            text(", see "), marked("docs", json!([{"type": "link", "attrs": {"href": "https://d"}}])),
        ]},
        {"type": "taskList", "attrs": {"localId": "1"}, "content": [
            {"type": "taskItem", "attrs": {"state": "DONE"}, "content": [text("one")]},
            {"type": "taskItem", "attrs": {"state": "TODO"}, "content": [text("two")]},
        ]},
        {"type": "orderedList", "content": [{"type": "listItem", "content": [
            {"type": "paragraph", "content": [text("first")]},
            {"type": "bulletList", "content": [{"type": "listItem", "content": [
                {"type": "paragraph", "content": [text("inner")]}]}]},
        ]}]},
        {"type": "codeBlock", "attrs": {"language": "sh"}, "content": [text("ls")]},
        {"type": "panel", "attrs": {"panelType": "info"}, "content": [
            {"type": "paragraph", "content": [text("mind")]}]},
        {"type": "table", "content": [
            {"type": "tableRow", "content": [{"type": "tableHeader", "content": [
                {"type": "paragraph", "content": [text("a|b")]}]}]},
            {"type": "tableRow", "content": [{"type": "tableCell", "content": [
                {"type": "paragraph", "content": [text("c")]}]}]},
        ]},
        {"type": "somethingNew", "content": [{"type": "paragraph", "content": [text("kept")]}]},
    ]});
    let expected = "## Goal\n\nGreet **everyone**\n`code` by @Ada, see [docs](https://d)\n\n\
        - [x] one\n- [ ] two\n\n1. first\n   - inner\n\n```sh\nls\n```\n\n> mind\n\n\
        | a\\|b |\n| --- |\n| c |\n\nkept";
    assert_eq!(to_markdown(&document), expected);
    assert_eq!(to_markdown(&Value::Null), "");
    assert_eq!(to_markdown(&json!("plain")), "plain");
}

/// Asserts that a document follows the published schema.
fn check(document: &Value) {
    assert_eq!(
        (&document["type"], &document["version"]),
        (&json!("doc"), &json!(1))
    );
    for block in document["content"].as_array().unwrap() {
        check_block(block);
    }
    assert!(document.to_string().chars().count() <= LIMIT);
}

fn check_block(node: &Value) {
    let kind = node["type"].as_str().unwrap();
    let children = node["content"].as_array().cloned().unwrap_or_default();
    match kind {
        "paragraph" | "heading" => children.iter().for_each(check_inline),
        "codeBlock" => {
            assert!(children.len() <= 1);
            for child in &children {
                assert!(child.get("marks").is_none() && child["text"] != "");
            }
        }
        "bulletList" | "orderedList" => {
            assert!(!children.is_empty());
            for item in &children {
                assert_eq!(item["type"], "listItem");
                let inner = item["content"].as_array().unwrap();
                assert!(matches!(
                    inner[0]["type"].as_str(),
                    Some("paragraph" | "codeBlock")
                ));
                for block in inner {
                    let kind = block["type"].as_str().unwrap();
                    assert!(
                        ["paragraph", "codeBlock", "bulletList", "orderedList"].contains(&kind),
                        "{kind}"
                    );
                    check_block(block);
                }
            }
        }
        "blockquote" => {
            assert!(!children.is_empty());
            for child in &children {
                assert_eq!(child["type"], "paragraph");
                check_block(child);
            }
        }
        "rule" => assert!(children.is_empty()),
        other => panic!("{other}"),
    }
    if kind == "heading" {
        assert!((1..=6).contains(&node["attrs"]["level"].as_u64().unwrap()));
    }
}

fn check_inline(node: &Value) {
    match node["type"].as_str().unwrap() {
        "hardBreak" => {}
        "text" => {
            let text = node["text"].as_str().unwrap();
            assert!(!text.is_empty());
            assert!(
                !text.contains(|c: char| c.is_control() && c != '\t' && c != '\n'),
                "{text:?}"
            );
            let marks = node["marks"].as_array().cloned().unwrap_or_default();
            let names: Vec<&str> = marks
                .iter()
                .map(|mark| mark["type"].as_str().unwrap())
                .collect();
            if names.contains(&"code") {
                assert!(
                    names.iter().all(|name| ["code", "link"].contains(name)),
                    "{names:?}"
                );
            }
            for mark in marks.iter().filter(|mark| mark["type"] == "link") {
                let href = mark["attrs"]["href"].as_str().unwrap();
                assert!(is_link(href), "{href}");
            }
        }
        other => panic!("{other}"),
    }
}

fn is_link(href: &str) -> bool {
    ["http://", "https://", "mailto:"]
        .iter()
        .any(|scheme| href.starts_with(scheme))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn produces_a_valid_document_from_any_text(text in "(?s).{0,400}") {
        check(&from_markdown(&text));
    }

    #[test]
    fn produces_a_valid_document_from_any_markup(
        parts in prop::collection::vec(prop::sample::select(vec![
            "**", "*", "_", "__", "~~", "`", "```", "\n", "\n\n", "- ", "1. ", "   ", "> ", "# ",
            "[", "](https://x)", "](y)", "!", "<!--", "-->", "&lt;", "\\", "word", "ä", "---",
            "https://h/", "<", ">", "|", "\u{2060}", "\u{0}", " ", "\r\n", "\t",
        ]), 0..60)
    ) {
        check(&from_markdown(&parts.concat()));
    }
}
