//! Environment variables that a mapping must not set.

use std::collections::BTreeMap;

/// Prefixes and names of variables that the loader, git or a shell reads. They change which
/// programs a run executes, or where git sends its credential. Variables that only tools of the
/// project read (`NODE_OPTIONS`, `PYTHONPATH`) are allowed.
const FORBIDDEN_PREFIXES: [&str; 3] = ["LD_", "DYLD_", "GIT_"];
const FORBIDDEN_NAMES: [&str; 7] = [
    "BASHOPTS",
    "BASH_ENV",
    "GCONV_PATH",
    "GLIBC_TUNABLES",
    "LOCPATH",
    "PATH",
    "SHELLOPTS",
];

/// Returns whether a variable changes which programs a run executes.
pub(super) fn is_forbidden_variable(name: &str) -> bool {
    FORBIDDEN_NAMES.contains(&name)
        || FORBIDDEN_PREFIXES
            .iter()
            .any(|prefix| name.starts_with(prefix))
}

/// Splits variables into the permitted ones and the names of the others. A mapping may have been
/// stored before a variable was forbidden.
pub fn partition_permitted(
    extra_env: &BTreeMap<String, String>,
) -> (BTreeMap<String, String>, Vec<&str>) {
    let (forbidden, permitted): (Vec<_>, Vec<_>) = extra_env
        .iter()
        .partition(|(name, _)| is_forbidden_variable(name));
    let permitted = permitted
        .into_iter()
        .map(|(name, value)| (name.clone(), value.clone()));
    let names = forbidden.into_iter().map(|(name, _)| name.as_str());
    (permitted.collect(), names.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excludes_variables_of_the_loader_git_and_shells() {
        let forbidden = [
            "BASH_ENV",
            "GIT_EXEC_PATH",
            "GIT_SSH_COMMAND",
            "LD_PRELOAD",
            "PATH",
        ];
        let permitted = ["CI", "ENV", "LDFLAGS", "NODE_OPTIONS", "PYTHONPATH"];
        let all = forbidden.iter().chain(&permitted);
        let all = all
            .map(|name| ((*name).to_owned(), "x".to_owned()))
            .collect();
        let (remaining, names) = partition_permitted(&all);
        assert_eq!(names, forbidden);
        assert!(remaining.keys().eq(&permitted), "{remaining:?}");
    }
}
