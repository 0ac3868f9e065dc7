//! Variables that an operator may not add to the runs of a project.

use std::collections::BTreeMap;

/// Read by the loader, by git, or by a shell that runs a script: they change what the run's own programs
/// execute, or where git sends its credential. What only the project's tools read (`NODE_OPTIONS`,
/// `PYTHONPATH`) is the operator's choice.
const PREFIXES: [&str; 3] = ["LD_", "DYLD_", "GIT_"];
const NAMES: [&str; 7] = [
    "BASHOPTS",
    "BASH_ENV",
    "GCONV_PATH",
    "GLIBC_TUNABLES",
    "LOCPATH",
    "PATH",
    "SHELLOPTS",
];

/// Whether a variable changes which programs a run executes.
pub(super) fn is_forbidden_variable(name: &str) -> bool {
    NAMES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Splits variables into those that a run may get and the names of the others. A mapping may be older than
/// the rule.
pub fn partition_permitted(
    extra_env: &BTreeMap<String, String>,
) -> (BTreeMap<String, String>, Vec<&str>) {
    let (refused, kept): (Vec<_>, Vec<_>) = extra_env
        .iter()
        .partition(|(name, _)| is_forbidden_variable(name));
    let kept = kept
        .into_iter()
        .map(|(name, value)| (name.clone(), value.clone()));
    let names = refused.into_iter().map(|(name, _)| name.as_str());
    (kept.collect(), names.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_loader_git_and_shells_read_is_left_out() {
        let refused = [
            "BASH_ENV",
            "GIT_EXEC_PATH",
            "GIT_SSH_COMMAND",
            "LD_PRELOAD",
            "PATH",
        ];
        let kept = ["CI", "ENV", "LDFLAGS", "NODE_OPTIONS", "PYTHONPATH"];
        let all = refused.iter().chain(&kept);
        let all = all
            .map(|name| ((*name).to_owned(), "x".to_owned()))
            .collect();
        let (given, names) = partition_permitted(&all);
        assert_eq!(names, refused);
        assert!(given.keys().eq(&kept), "{given:?}");
    }
}
