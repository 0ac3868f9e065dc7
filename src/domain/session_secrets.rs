//! Names and scopes of the secrets that operators provide to session runs. See
//! docs/configuration.md#secrets-for-runs.
//!
//! A secret belongs to one team or to all teams. The secret `NAME` of the team `ENG` is stored as
//! `ENG_NAME`. Only sessions of that team receive it, as `NAME`. The owner is part of the storage
//! key, so that no prefix has to be guessed: `ENG` and `ENG2` share no secrets. In a session, a
//! secret of the team overrides a global secret of the same name.
//!
//! Deleting a mapping deletes the secrets of its team. Otherwise they could no longer be listed or
//! deleted, and a later mapping with the same key could receive them.

use super::ids::TeamKey;
use super::reserved_variables::is_reserved;

/// Maximum length of a name, in characters.
const MAX_NAME: usize = 100;

/// Reason why a name is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SecretNameError {
    /// Other characters than letters, digits and underscores.
    #[error("name must contain only letters, digits, and underscores")]
    Characters,
    /// Too long.
    #[error("name must be at most {MAX_NAME} characters long")]
    TooLong,
    /// Global name with this team prefix.
    #[error("Secret name must not start with a team key prefix ({0})")]
    TeamPrefix(String),
    /// Reserved variable.
    #[error("{0} is set by the service itself in a run; choose another name")]
    Reserved(String),
}

/// Scope of a secret: the sessions that receive it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretScope {
    /// Sessions of all teams.
    Global,
    /// Sessions of this team.
    Team(TeamKey),
}

impl SecretScope {
    /// Returns the first part of the storage key. Empty for global secrets, because no team key is
    /// empty.
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

/// Valid name of a secret, in upper case, and its scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretName {
    scope: SecretScope,
    name: String,
}

impl SecretName {
    /// Parses a name that an operator entered.
    ///
    /// # Errors
    /// The name contains other characters than letters, digits and underscores, or is too long.
    pub fn parse(scope: SecretScope, input: &str) -> Result<Self, SecretNameError> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if input.is_empty() || !input.chars().all(is_plain) {
            return Err(SecretNameError::Characters);
        }
        if input.len() > MAX_NAME {
            return Err(SecretNameError::TooLong);
        }
        let name = input.to_ascii_uppercase();
        Ok(Self { scope, name })
    }

    /// Checks whether a secret with this name can be set. Secrets that were set before their name
    /// became reserved can still be listed and deleted.
    ///
    /// # Errors
    /// The variable is reserved, or a global name begins with the prefix of a team.
    pub fn check_allowed<'a>(
        &self,
        teams: impl IntoIterator<Item = &'a TeamKey>,
    ) -> Result<(), SecretNameError> {
        if is_reserved(&self.name) {
            return Err(SecretNameError::Reserved(self.name.clone()));
        }
        let mut prefixes = teams.into_iter().map(prefix);
        let conflict = prefixes.find(|prefix| self.name.starts_with(prefix));
        match (&self.scope, conflict) {
            (SecretScope::Global, Some(prefix)) => Err(SecretNameError::TeamPrefix(prefix)),
            _ => Ok(()),
        }
    }

    /// Returns the scope.
    pub fn scope(&self) -> &SecretScope {
        &self.scope
    }

    /// Returns the name of the variable in a session.
    pub fn variable(&self) -> &str {
        &self.name
    }

    /// Returns the stored name. For a team, it begins with the team key.
    pub fn stored_name(&self) -> String {
        format!("{}{}", self.scope.prefix(), self.name)
    }
}

/// Returns the name of the variable in a session for a stored name of this scope.
pub fn variable_from_stored_name<'a>(scope: &SecretScope, stored: &'a str) -> Option<&'a str> {
    stored.strip_prefix(scope.prefix().as_str())
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
    fn team_secrets_are_stored_with_the_team_key_as_prefix() {
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
            let result = SecretName::parse(SecretScope::Global, bad);
            assert_eq!(result, Err(SecretNameError::Characters), "{bad:?}");
        }
        let long = SecretName::parse(SecretScope::Global, &"A".repeat(101));
        assert_eq!(long, Err(SecretNameError::TooLong));
    }

    #[test]
    fn rejects_global_names_with_a_team_prefix() {
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
        for (input, is_allowed) in rows {
            let name = SecretName::parse(SecretScope::Global, input).unwrap();
            assert_eq!(name.check_allowed(&teams).is_ok(), is_allowed, "{input}");
        }
        let own = SecretName::parse(team("ENG"), "OPS_TOKEN").unwrap();
        assert_eq!(own.check_allowed(&teams), Ok(()));
        let name = SecretName::parse(SecretScope::Global, "eng_x").unwrap();
        assert_eq!(
            name.check_allowed(&teams).unwrap_err().to_string(),
            "Secret name must not start with a team key prefix (ENG_)"
        );
    }

    #[test]
    fn rejects_reserved_names() {
        for input in [
            "run_config",
            "Path",
            "LD_PRELOAD",
            "git_ssh",
            "AGENT_IMPLEMENT_X",
        ] {
            for scope in [SecretScope::Global, team("ENG")] {
                let name = SecretName::parse(scope, input).unwrap();
                let result = name.check_allowed([]);
                assert!(
                    matches!(result, Err(SecretNameError::Reserved(_))),
                    "{input}"
                );
            }
        }
    }
}
