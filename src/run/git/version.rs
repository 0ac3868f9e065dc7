//! Oldest version of git that the commands of a run work with.

/// Version of Debian 11.
const OLDEST: (u32, u32) = (2, 30);

/// Git is older than the oldest version that runs work with.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("git {0} is too old: runs need git {major}.{minor} or newer", major = OLDEST.0, minor = OLDEST.1)]
pub struct OldGitError(String);

/// Checks the output of `git --version`. A version that cannot be read is accepted.
///
/// # Errors
/// Returns an error if the version is too old.
pub fn check_git_version(output: &str) -> Result<(), OldGitError> {
    let version = output.split_whitespace().nth(2).unwrap_or_default();
    let mut numbers = version.split('.').map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) if (major, minor) < OLDEST => {
            Err(OldGitError(version.to_owned()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_versions_before_the_oldest() {
        let rows = [
            ("git version 2.25.1\n", false),
            ("git version 1.8.3.1\n", false),
            ("git version 2.29.3", false),
            ("git version 2.30.2\n", true),
            ("git version 2.47.3\n", true),
            ("git version 3.0.0.rc1\n", true),
            ("git version 2.39.5 (Apple Git-154)\n", true),
            ("something else\n", true),
            ("", true),
        ];
        for (output, accepted) in rows {
            assert_eq!(check_git_version(output).is_ok(), accepted, "{output}");
        }
        let error = check_git_version("git version 2.25.1\n").unwrap_err();
        assert_eq!(
            error.to_string(),
            "git 2.25.1 is too old: runs need git 2.30 or newer"
        );
    }
}
