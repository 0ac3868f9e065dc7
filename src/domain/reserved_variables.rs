//! Environment variables that neither a secret nor a mapping may set: the service or the system sets them in a run, or
//! they change how its programs start or where they send what they know. Variables that only tools of the project read
//! (`PYTHONPATH`) are allowed.

use std::collections::BTreeMap;

/// Reserved variables.
const NAMES: [&str; 39] = [
    "RUN_CONFIG",
    "EGRESS_PROXY",
    "SESSION_NONCE",
    "SESSION_VARIABLES",
    "SESSION_SECRETS",
    "SESSION_ENDS_AT",
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
    "GCONV_PATH",
    "GLIBC_TUNABLES",
    "LOCPATH",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_OPTIONS",
    "NODE_EXTRA_CA_CERTS",
    "PYTHONSTARTUP",
];

/// Prefixes of reserved variables: of the loader, git, CI and the service.
const PREFIXES: [&str; 7] = [
    "LD_",
    "DYLD_",
    "GIT_",
    "GITHUB_",
    "ACTIONS_",
    "RUNNER_",
    "AGENT_IMPLEMENT_",
];

/// Returns whether a variable is reserved, in any letter case.
pub fn is_reserved(variable: &str) -> bool {
    let name = variable.to_ascii_uppercase();
    NAMES.contains(&name.as_str()) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Splits variables into the permitted ones and the names of the others. A mapping may have been stored before a
/// variable was reserved.
pub fn partition_permitted(
    variables: &BTreeMap<String, String>,
) -> (BTreeMap<String, String>, Vec<&str>) {
    let (reserved, permitted): (Vec<_>, Vec<_>) =
        variables.iter().partition(|(name, _)| is_reserved(name));
    let permitted = permitted
        .into_iter()
        .map(|(name, value)| (name.clone(), value.clone()));
    let names = reserved.into_iter().map(|(name, _)| name.as_str());
    (permitted.collect(), names.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excludes_variables_of_the_loader_git_shells_and_the_service() {
        let reserved = [
            "BASH_ENV",
            "GIT_EXEC_PATH",
            "GIT_SSH_COMMAND",
            "LD_PRELOAD",
            "NODE_OPTIONS",
            "PATH",
            "RUN_CONFIG",
            "https_proxy",
        ];
        let permitted = ["GITLAB_TOKEN", "LDFLAGS", "NPM_TOKEN", "PYTHONPATH"];
        let all = reserved.iter().chain(&permitted);
        let all = all
            .map(|name| ((*name).to_owned(), "x".to_owned()))
            .collect();
        let (remaining, names) = partition_permitted(&all);
        assert_eq!(names, reserved);
        assert!(remaining.keys().eq(&permitted), "{remaining:?}");
    }
}
