//! Attribute of tests that need something a machine may lack: `#[requires("engine")]`.
//!
//! The test harness counts a test as ignored only if that is known before the test starts. So the attribute
//! decides when the tests are compiled, and Cargo compiles them again when `AGENT_IMPLEMENT_SKIP` or `CI`
//! changes. This keeps plain `#[test]` functions, their filters and their output, which a test harness of our
//! own (such as libtest-mimic) would replace.

use proc_macro::TokenStream;

/// Names of all requirements. `tests/README.md` describes them.
const REQUIREMENTS: [&str; 15] = [
    "agents",
    "browser",
    "caddy",
    "contracts",
    "crates",
    "engine",
    "fish",
    "groff",
    "immutable",
    "mount",
    "namespaces",
    "old-systems",
    "package",
    "panel-tools",
    "zsh",
];

/// Makes the test ignored if `AGENT_IMPLEMENT_SKIP` names one of its requirements, with the reason.
///
/// The variable lists `NAME` or `NAME=REASON`, separated by commas. If `CI` is set, a name without a reason
/// has no effect: the test runs, and fails if its requirement is missing. The attribute stands above `#[test]`.
#[proc_macro_attribute]
pub fn requires(arguments: TokenStream, test: TokenStream) -> TokenStream {
    let variable = |name| std::env::var(name).unwrap_or_default();
    let skips = variable("AGENT_IMPLEMENT_SKIP");
    let attribute = ignore_attribute(
        &arguments.to_string(),
        &test.to_string(),
        &skips,
        is_ci(&variable("CI")),
    );
    let attribute = attribute.unwrap_or_else(|error| format!("compile_error!({error:?});"));
    // Cargo then compiles the tests again when a variable changes.
    let dependencies = "const _: [Option<&str>; 2] = [option_env!(\"AGENT_IMPLEMENT_SKIP\"), option_env!(\"CI\")];";
    let mut tokens: TokenStream = parse(dependencies);
    tokens.extend([parse(&attribute), test]);
    tokens
}

fn parse(source: &str) -> TokenStream {
    source.parse().unwrap_or_default()
}

fn is_ci(variable: &str) -> bool {
    !matches!(variable, "" | "false")
}

/// Returns the source of the `ignore` attribute, or an empty text if the test runs.
fn ignore_attribute(arguments: &str, test: &str, skips: &str, ci: bool) -> Result<String, String> {
    let attributes = test.split_once("fn ").map_or(test, |(before, _)| before);
    let attributes: String = attributes.split_whitespace().collect();
    if !attributes.contains("test]") && !attributes.contains("test(") {
        return Err("#[requires] must stand above #[test]".to_owned());
    }
    let skips = parse_skips(skips)?;
    let mut reasons = Vec::new();
    for name in arguments
        .split(',')
        .map(|name| name.trim().trim_matches('"'))
    {
        check_name(name)?;
        let of_name = skips.iter().filter(|(skipped, _)| *skipped == name);
        match of_name.map(|(_, reason)| *reason).max() {
            Some(Some(reason)) => reasons.push(format!("requires {name}: {reason}")),
            Some(None) if !ci => {
                reasons.push(format!("requires {name}, which AGENT_IMPLEMENT_SKIP names"));
            }
            _ => {}
        }
    }
    if reasons.is_empty() {
        return Ok(String::new());
    }
    Ok(format!("#[ignore = {:?}]", reasons.join("; ")))
}

/// Parses the list of skipped requirements into names and reasons.
fn parse_skips(list: &str) -> Result<Vec<(&str, Option<&str>)>, String> {
    let mut skips = Vec::new();
    for entry in list
        .split(',')
        .map(str::trim)
        .filter(|entry| !entry.is_empty())
    {
        let (name, reason) = match entry.split_once('=') {
            Some((name, reason)) => (name.trim(), Some(reason.trim())),
            None => (entry, None),
        };
        check_name(name).map_err(|error| format!("AGENT_IMPLEMENT_SKIP: {error}"))?;
        skips.push((name, reason.filter(|reason| !reason.is_empty())));
    }
    Ok(skips)
}

fn check_name(name: &str) -> Result<(), String> {
    if REQUIREMENTS.contains(&name) {
        return Ok(());
    }
    Err(format!("{name} is not one of {REQUIREMENTS:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEST: &str = "#[tokio::test] async fn runs() {}";

    fn attribute(arguments: &str, skips: &str, ci: bool) -> String {
        ignore_attribute(arguments, TEST, skips, ci).expect("valid")
    }

    #[test]
    fn test_runs_unless_its_requirement_is_skipped() {
        for skips in ["", "zsh", "zsh=not found,mount"] {
            assert_eq!(attribute("\"engine\"", skips, false), "", "{skips}");
        }
    }

    #[test]
    fn skipped_test_is_ignored_with_its_reason() {
        let cases = [
            (
                "engine",
                "requires engine, which AGENT_IMPLEMENT_SKIP names",
            ),
            ("zsh, engine= no root ", "requires engine: no root"),
            ("mount=no \"right\",engine=gone", "requires engine: gone"),
        ];
        for (skips, reason) in cases {
            let expected = format!("#[ignore = {reason:?}]");
            assert_eq!(attribute("\"engine\"", skips, false), expected, "{skips}");
        }
        let both = attribute("\"zsh\", \"mount\"", "mount=a,zsh=\"b\"", false);
        assert_eq!(
            both,
            r#"#[ignore = "requires zsh: \"b\"; requires mount: a"]"#
        );
    }

    #[test]
    fn ci_accepts_only_a_skip_with_a_reason() {
        assert_eq!(attribute("\"engine\"", "engine", true), "");
        assert_eq!(attribute("\"engine\"", "engine=", true), "");
        let expected = r#"#[ignore = "requires engine: no root"]"#;
        assert_eq!(attribute("\"engine\"", "engine=no root", true), expected);
        assert_eq!(
            attribute("\"engine\"", "engine,engine=no root", true),
            expected
        );
        assert!(is_ci("true") && is_ci("1") && !is_ci("") && !is_ci("false"));
    }

    #[test]
    fn rejects_unknown_names_and_a_wrong_place() {
        for (arguments, test, skips) in [
            ("\"engines\"", TEST, ""),
            ("", TEST, ""),
            ("\"engine\"", TEST, "engines"),
            ("\"engine\"", TEST, "engine,caddi=no root"),
            // `#[test]` above the attribute is already expanded.
            ("\"engine\"", "fn runs() {}", ""),
        ] {
            let result = ignore_attribute(arguments, test, skips, false);
            assert!(result.is_err(), "{arguments} {test} {skips}: {result:?}");
        }
    }
}
