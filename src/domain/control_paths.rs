//! Files that control CI, agents and reviews: a change to them changes who checks the next change.

/// Folders at the top of a repository, in lower case.
const TOP_FOLDERS: [&str; 12] = [
    ".agent-implement/",
    ".buildkite/",
    ".circleci/",
    ".forgejo/workflows/",
    ".gitea/workflows/",
    ".github/actions/",
    ".github/agents/",
    ".github/instructions/",
    ".github/prompts/",
    ".github/workflows/",
    ".tekton/",
    ".woodpecker/",
];

/// Folders at any depth, in lower case.
const FOLDERS: [&str; 8] = [
    ".agents",
    ".amp",
    ".claude",
    ".codex",
    ".cursor",
    ".gemini",
    ".husky",
    ".windsurf",
];

/// Files by their path or, without a slash, by their name at any depth. In lower case.
const FILES: [&str; 38] = [
    ".aider.conf.yml",
    ".cirrus.yml",
    ".cursorrules",
    ".drone.yml",
    ".envrc",
    ".gitattributes",
    ".github/codeowners",
    ".github/copilot-instructions.md",
    ".github/dependabot.yml",
    ".gitlab-ci.yml",
    ".gitmodules",
    ".mcp.json",
    ".npmrc",
    ".pre-commit-config.yaml",
    ".travis.yml",
    ".vscode/tasks.json",
    ".windsurfrules",
    "agent.md",
    "agents.local.md",
    "agents.md",
    "agents.override.md",
    "appveyor.yml",
    "azure-pipelines.yml",
    "bitbucket-pipelines.yml",
    "claude.local.md",
    "claude.md",
    "codeowners",
    "cloudbuild.yaml",
    "docs/codeowners",
    "gemini.md",
    "jenkinsfile",
    "lefthook.yml",
    "opencode.json",
    "planning.md",
    "renovate.json",
    "workflow.md",
    ".woodpecker.yml",
    ".yarnrc.yml",
];

/// Returns whether a file controls CI, agents or reviews. Case is ignored: it does not tell files apart
/// everywhere.
pub fn is_control_path(path: &str) -> bool {
    let path = path.to_lowercase();
    let (folders, name) = path.rsplit_once('/').unwrap_or(("", &path));
    TOP_FOLDERS.iter().any(|folder| path.starts_with(folder))
        || folders.split('/').any(|folder| FOLDERS.contains(&folder))
        || FILES.iter().any(|file| path == *file || name == *file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_files_of_ci_agents_and_reviews() {
        for path in [
            ".github/workflows/ci.yml",
            ".GitHub/Workflows/CI.yml",
            ".github/actions/setup/action.yml",
            ".github/CODEOWNERS",
            "CODEOWNERS",
            "CLAUDE.md",
            "web/CLAUDE.md",
            "AGENTS.md",
            ".claude/settings.json",
            "web/.claude/settings.json",
            ".cursor/rules/a.mdc",
            ".agent-implement/config.yml",
            "Jenkinsfile",
            ".mcp.json",
            ".gitmodules",
        ] {
            assert!(is_control_path(path), "{path}");
        }
        for path in [
            "src/main.rs",
            "README.md",
            "docs/claude.md.txt",
            ".github/ISSUE_TEMPLATE/bug.md",
            "src/agent-implement/a.rs",
            "x.github/workflows/ci.yml",
            "claude",
            "",
        ] {
            assert!(!is_control_path(path), "{path}");
        }
    }
}
