//! Command line of the real agent CLI: accepted flags and error messages.

/// Flags without value.
const SWITCHES: &[&str] = &[
    "--print",
    "--verbose",
    "--dangerously-skip-permissions",
    "--strict-mcp-config",
    "--no-session-persistence",
    "--bare",
    "--safe-mode",
    "--include-partial-messages",
    "--include-hook-events",
    "--continue",
    "--fork-session",
    "--disable-slash-commands",
    "--allow-dangerously-skip-permissions",
    "--replay-user-messages",
    "--version",
    "--help",
];

/// Flags with one value.
const VALUES: &[&str] = &[
    "--output-format",
    "--input-format",
    "--setting-sources",
    "--max-turns",
    "--model",
    "--fallback-model",
    "--effort",
    "--permission-mode",
    "--append-system-prompt",
    "--append-system-prompt-file",
    "--system-prompt",
    "--system-prompt-file",
    "--json-schema",
    "--settings",
    "--max-budget-usd",
    "--task-budget",
    "--session-id",
    "--resume",
    "--permission-prompt-tool",
    "--agents",
    "--scripts",
];

/// Flags whose values extend to the next flag.
const LISTS: &[&str] = &[
    "--tools",
    "--allowedTools",
    "--disallowedTools",
    "--mcp-config",
    "--add-dir",
];

const ALIASES: &[(&str, &str)] = &[
    ("-p", "--print"),
    ("-c", "--continue"),
    ("-r", "--resume"),
    ("-v", "--version"),
    ("-h", "--help"),
    ("--allowed-tools", "--allowedTools"),
    ("--disallowed-tools", "--disallowedTools"),
];

/// Parsed command line: flags in order, and positional arguments.
#[derive(Debug, Default)]
pub(super) struct CliFlags {
    parsed: Vec<(String, String)>,
    pub positional: Vec<String>,
}

impl CliFlags {
    /// Parses the arguments. The error is the message on standard error, with exit code 1.
    pub(super) fn parse(args: Vec<String>) -> Result<Self, String> {
        let mut flags = Self::default();
        let mut args = args.into_iter().peekable();
        while let Some(arg) = args.next() {
            if !arg.starts_with('-') || arg == "-" {
                flags.positional.push(arg);
                continue;
            }
            let (name, inline) = match arg.split_once('=') {
                Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
                None => (arg.clone(), None),
            };
            let alias = ALIASES.iter().find(|(short, _)| *short == name);
            let name = alias.map_or(name, |(_, long)| (*long).to_owned());
            if SWITCHES.contains(&name.as_str()) {
                flags.parsed.push((name, String::new()));
            } else if VALUES.contains(&name.as_str()) {
                let missing = || format!("error: option '{name} <value>' argument missing");
                let value = inline.or_else(|| args.next()).ok_or_else(missing)?;
                flags.parsed.push((name, value));
            } else if LISTS.contains(&name.as_str()) {
                let mut values: Vec<String> = inline.into_iter().collect();
                while let Some(value) = args.next_if(|next| !next.starts_with('-')) {
                    values.push(value);
                }
                flags.parsed.push((name, values.join(",")));
            } else {
                return Err(format!("error: unknown option '{name}'"));
            }
        }
        Ok(flags)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.parsed.iter().any(|(flag, _)| flag == name)
    }

    pub(super) fn value(&self, name: &str) -> Option<&str> {
        let found = self.parsed.iter().rev().find(|(flag, _)| flag == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Returns the items of a list flag.
    pub(super) fn list(&self, name: &str) -> Option<Vec<&str>> {
        let parts = self.value(name)?.split([',', ' ']);
        Some(parts.filter(|part| !part.is_empty()).collect())
    }

    /// Returns the turn limit. Like the real CLI, ignores an invalid value.
    pub(super) fn max_turns(&self) -> Option<usize> {
        self.value("--max-turns")?
            .parse()
            .ok()
            .filter(|turns| *turns > 0)
    }

    /// Returns whether settings of this source (`user`, `project`, `local`) are loaded.
    pub(super) fn loads_settings_from(&self, source: &str) -> bool {
        self.list("--setting-sources")
            .is_none_or(|sources| sources.contains(&source))
    }

    pub(super) fn output_format(&self) -> &str {
        self.value("--output-format").unwrap_or("text")
    }
}
