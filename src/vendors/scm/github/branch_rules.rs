//! Rules of a branch: branch protection and rulesets.

use serde::{Deserialize, Serialize};

use crate::http::{VendorError, VendorErrorKind};
use domain::ids::Repo;

use super::GitHub;
use super::git_data::encode_branch;

/// Rules of a branch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BranchRules {
    /// Whether the branch is protected, or a ruleset applies to it.
    pub is_protected: bool,
    /// Names of required checks.
    pub required_checks: Vec<String>,
    /// Whether merges must go through the merge queue.
    pub has_merge_queue: bool,
}

impl GitHub {
    /// Returns the rules of a branch. Takes two requests, which do not count against the rate limit while nothing
    /// changes.
    ///
    /// # Errors
    /// `is_not_found()` if the branch does not exist.
    pub async fn branch_rules(
        &self,
        repo: &Repo,
        branch: &str,
    ) -> Result<BranchRules, VendorError> {
        const ACTION: &str = "reading the rules of a branch";
        let name = encode_branch(branch);
        let url = self.repo_url(repo, &format!("/branches/{name}"));
        let branch = self.read::<Branch>(repo, ACTION, url).await?.value;
        let url = self.repo_url(repo, &format!("/rules/branches/{name}?per_page=100"));
        let rules = match self.read::<Vec<Rule>>(repo, ACTION, url).await {
            Ok(page) => page.value,
            // Older enterprise servers have no rulesets, nor have private repositories of free plans.
            Err(error) if error.is_not_found() || needs_paid_plan(&error) => Vec::new(),
            Err(error) => return Err(error),
        };
        let mut checks = branch.protection.required_status_checks.contexts;
        let of_rules = rules
            .iter()
            .flat_map(|rule| &rule.parameters.required_status_checks);
        checks.extend(of_rules.map(|check| check.context.clone()));
        checks.sort();
        checks.dedup();
        Ok(BranchRules {
            is_protected: branch.protected || !rules.is_empty(),
            required_checks: checks,
            has_merge_queue: rules.iter().any(|rule| rule.kind == "merge_queue"),
        })
    }
}

/// Whether a feature is refused to private repositories of the owner's plan.
fn needs_paid_plan(error: &VendorError) -> bool {
    matches!(&error.kind, VendorErrorKind::Status { status: 403, message, .. } if message.starts_with("Upgrade to GitHub"))
}

#[derive(Serialize, Deserialize)]
struct Branch {
    #[serde(default)]
    protected: bool,
    #[serde(default)]
    protection: Protection,
}

#[derive(Serialize, Deserialize, Default)]
struct Protection {
    #[serde(default)]
    required_status_checks: RequiredContexts,
}

#[derive(Serialize, Deserialize, Default)]
struct RequiredContexts {
    #[serde(default)]
    contexts: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct Rule {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    parameters: Parameters,
}

#[derive(Serialize, Deserialize, Default)]
struct Parameters {
    #[serde(default)]
    required_status_checks: Vec<RequiredCheck>,
}

#[derive(Serialize, Deserialize)]
struct RequiredCheck {
    context: String,
}
