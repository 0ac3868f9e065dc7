//! Names of the agent program and the model of a run. Runs report them, so they are untrusted.

/// Maximum length of a name, in bytes. The longest are addresses of inference profiles.
const MAX_NAME: usize = 160;

/// Returns the name if it is plausible: letters, digits and the separators of model ids. Any other
/// text is dropped, because names become keys of the scoreboard and are shown to people.
pub fn parse_agent_name(text: &str) -> Option<String> {
    let text = text.trim();
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "._-:/@[]+".contains(c);
    let is_name = text.len() <= MAX_NAME
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(is_allowed);
    is_name.then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_names_of_models_and_nothing_else() {
        let profile =
            "arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.anthropic.claude-v1:0";
        for name in ["claude", "claude-opus-4-8[1m]", "gpt-5.2", "o3", profile] {
            assert_eq!(parse_agent_name(name).as_deref(), Some(name));
        }
        assert_eq!(parse_agent_name(" codex\n").as_deref(), Some("codex"));
        let long = "m".repeat(MAX_NAME + 1);
        for text in [
            "",
            " ",
            "-x",
            "a b",
            "a\u{200b}b",
            "<b>",
            "m\u{e4}h",
            &long,
            "a\nb",
            "`x`",
        ] {
            assert_eq!(parse_agent_name(text), None, "{text:?}");
        }
    }
}
