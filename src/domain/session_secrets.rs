//! Secrets that operators hand to runs in sessions: their names, and whose they are.
//! (spec: *Secret scoping rules*)
//!
//! A secret belongs to one team or to all of them. A team's secret `NAME` is stored as `ENG_NAME`
//! and reaches the sessions of exactly that team, as `NAME`. The owner is part of the key it is
//! stored under, so no prefix is ever guessed: `ENG` and `ENG2` share nothing, and neither would
//! `ENG` and `ENG_X` even if mappings let them live beside each other. In a session the team's own
//! secret beats the global one of the same name.
//!
//! A mapping that is deleted takes its team's secrets with it: afterwards nobody could list or
//! delete them, and a later mapping of the same key may be for somebody else's repository.

use super::ids::TeamKey;

/// Longest name, in characters.
const MAX_NAME: usize = 100;

/// Variables that the service or the system sets in a run, or that decide how its programs start. A
/// secret of such a name would replace what the run depends on.
const RESERVED: [&str; 34] = [
    "RUN_CONFIG",
    "SESSION_NONCE",
    "SESSION_VARIABLES",
    "SESSION_SECRETS",
    "ANTHROPIC_API_KEY",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "PWD",
    "OLDPWD",
    "TMPDIR",
    "TERM",
    "LANG",
    "LC_ALL",
    "TZ",
    "CI",
    "IFS",
    "ENV",
    "BASH_ENV",
    "BASHOPTS",
    "SHELLOPTS",
    "PROMPT_COMMAND",
    "PS4",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_OPTIONS",
    "NODE_EXTRA_CA_CERTS",
    "PYTHONSTARTUP",
];

/// Beginnings of such names: the loader's, git's, CI's and our own.
const RESERVED_PREFIXES: [&str; 7] = [
    "LD_",
    "DYLD_",
    "GIT_",
    "GITHUB_",
    "ACTIONS_",
    "RUNNER_",
    "AGENT_IMPLEMENT_",
];

/// Why a name is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SecretNameError {
    #[error("name must contain only letters, digits, and underscores")]
    Characters,
    #[error("name must be at most {MAX_NAME} characters long")]
    TooLong,
    #[error("Secret name must not start with a team key prefix ({0})")]
    TeamPrefix(String),
    #[error("{0} is set by the service itself in a run; choose another name")]
    Reserved(String),
}

/// Whose sessions get a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretScope {
    Global,
    Team(TeamKey),
}

impl SecretScope {
    /// The first half of the key that its secrets are stored under; no team key is empty.
    pub fn owner(&self) -> String {
        match self {
            SecretScope::Global => String::new(),
            SecretScope::Team(team) => team.as_str().to_ascii_uppercase(),
        }
    }

    fn prefix(&self) -> String {
        match self {
            SecretScope::Global => String::new(),
            SecretScope::Team(team) => prefix(team),
        }
    }
}

/// A valid name of a secret, in upper case, and whose it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretName {
    scope: SecretScope,
    name: String,
}

impl SecretName {
    /// Reads a name as an operator gave it.
    ///
    /// # Errors
    /// When it has other characters than letters, digits and underscores, or is too long.
    pub fn parse(scope: SecretScope, given: &str) -> Result<Self, SecretNameError> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if given.is_empty() || !given.chars().all(is_plain) {
            return Err(SecretNameError::Characters);
        }
        if given.len() > MAX_NAME {
            return Err(SecretNameError::TooLong);
        }
        let name = given.to_ascii_uppercase();
        Ok(Self { scope, name })
    }

    /// Whether a secret of this name may be set beside these teams. One that was set before its
    /// name was taken may still be listed and deleted.
    ///
    /// # Errors
    /// When the service itself sets the variable, or a global name begins like a team's.
    pub fn check_allowed<'a>(
        &self,
        teams: impl IntoIterator<Item = &'a TeamKey>,
    ) -> Result<(), SecretNameError> {
        if is_reserved(&self.name) {
            return Err(SecretNameError::Reserved(self.name.clone()));
        }
        let mut prefixes = teams.into_iter().map(prefix);
        let taken = prefixes.find(|prefix| self.name.starts_with(prefix));
        match (&self.scope, taken) {
            (SecretScope::Global, Some(prefix)) => Err(SecretNameError::TeamPrefix(prefix)),
            _ => Ok(()),
        }
    }

    pub fn scope(&self) -> &SecretScope {
        &self.scope
    }

    /// The variable it is in a session.
    pub fn variable(&self) -> &str {
        &self.name
    }

    /// The name it is stored under: a team's begins with its key.
    pub fn stored_name(&self) -> String {
        format!("{}{}", self.scope.prefix(), self.name)
    }
}

/// The variable that a stored name of this scope is in a session.
pub fn variable_from_stored_name<'a>(scope: &SecretScope, stored: &'a str) -> Option<&'a str> {
    stored.strip_prefix(scope.prefix().as_str())
}

/// Whether the service itself sets this variable in a run, or the system depends on it.
pub fn is_reserved(variable: &str) -> bool {
    let name = variable.to_ascii_uppercase();
    RESERVED.contains(&name.as_str())
        || RESERVED_PREFIXES
            .iter()
            .any(|prefix| name.starts_with(prefix))
}

fn prefix(team: &TeamKey) -> String {
    format!("{}_", team.as_str().to_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn team(key: &str) -> SecretScope {
        SecretScope::Team(key.into())
    }

    #[test]
    fn a_teams_secret_is_stored_with_its_key_before_it() {
        let name = SecretName::parse(team("eng"), "npm_Token").unwrap();
        assert_eq!(name.stored_name(), "ENG_NPM_TOKEN");
        assert_eq!(name.variable(), "NPM_TOKEN");
        assert_eq!(
            variable_from_stored_name(&team("ENG"), "ENG_NPM_TOKEN"),
            Some("NPM_TOKEN")
        );
        assert_eq!(
            variable_from_stored_name(&SecretScope::Global, "X_Y"),
            Some("X_Y")
        );
        assert_eq!(variable_from_stored_name(&team("ENG2"), "ENG_X"), None);
        assert_ne!(team("ENG").owner(), team("ENG_X").owner());
    }

    #[test]
    fn names_are_letters_digits_and_underscores() {
        for bad in ["", "A-B", "A B", "É", "A=B", "A\nB", "../x"] {
            let refused = SecretName::parse(SecretScope::Global, bad);
            assert_eq!(refused, Err(SecretNameError::Characters), "{bad:?}");
        }
        let long = SecretName::parse(SecretScope::Global, &"A".repeat(101));
        assert_eq!(long, Err(SecretNameError::TooLong));
    }

    #[test]
    fn a_global_name_does_not_begin_like_a_teams() {
        let teams: Vec<TeamKey> = vec!["eng".into(), "OPS".into()];
        let rows = [
            ("NPM_TOKEN", true),
            ("ENGINE", true),
            ("ENG", true),
            ("ENG2_X", true),
            ("ENG_X", false),
            ("eng_", false),
            ("OPS_ENG_X", false),
        ];
        for (given, fine) in rows {
            let name = SecretName::parse(SecretScope::Global, given).unwrap();
            assert_eq!(name.check_allowed(&teams).is_ok(), fine, "{given}");
        }
        let own = SecretName::parse(team("ENG"), "OPS_TOKEN").unwrap();
        assert_eq!(own.check_allowed(&teams), Ok(()));
        let told = SecretName::parse(SecretScope::Global, "eng_x").unwrap();
        assert_eq!(
            told.check_allowed(&teams).unwrap_err().to_string(),
            "Secret name must not start with a team key prefix (ENG_)"
        );
    }

    #[test]
    fn what_the_service_sets_in_a_run_is_no_secrets_name() {
        for given in [
            "run_config",
            "Path",
            "LD_PRELOAD",
            "git_ssh",
            "AGENT_IMPLEMENT_X",
        ] {
            for scope in [SecretScope::Global, team("ENG")] {
                let name = SecretName::parse(scope, given).unwrap();
                let refused = name.check_allowed([]);
                assert!(
                    matches!(refused, Err(SecretNameError::Reserved(_))),
                    "{given}"
                );
            }
        }
        assert!(!is_reserved("NPM_TOKEN") && !is_reserved("GITLAB_TOKEN"));
    }
}
