//! Lock files of package managers: written by programs, and changed by most changes of dependencies.

/// File names, in lower case.
const NAMES: [&str; 25] = [
    ".terraform.lock.hcl",
    "bun.lock",
    "bun.lockb",
    "cargo.lock",
    "composer.lock",
    "conan.lock",
    "deno.lock",
    "flake.lock",
    "gemfile.lock",
    "go.sum",
    "go.work.sum",
    "gradle.lockfile",
    "mix.lock",
    "npm-shrinkwrap.json",
    "package-lock.json",
    "package.resolved",
    "packages.lock.json",
    "pdm.lock",
    "pipfile.lock",
    "pnpm-lock.yaml",
    "podfile.lock",
    "poetry.lock",
    "pubspec.lock",
    "uv.lock",
    "yarn.lock",
];

/// Returns whether a path is the lock file of a package manager.
pub fn is_lock_file(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    NAMES.iter().any(|known| known.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_lock_files_by_name_in_any_folder() {
        for path in [
            "Cargo.lock",
            "web/package-lock.json",
            "a/b/Gemfile.lock",
            "go.sum",
            "infra/.terraform.lock.hcl",
        ] {
            assert!(is_lock_file(path), "{path}");
        }
        for path in [
            "src/lock.rs",
            "cargo.lock/readme",
            "package.json",
            "",
            "Cargo.lock.md",
        ] {
            assert!(!is_lock_file(path), "{path}");
        }
    }
}
