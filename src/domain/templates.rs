//! Files that the service provides to target repositories: workflows, which the service keeps up to
//! date, and starter files, which are created once. See docs/behaviour.md#workflow-templates.
//!
//! A workflow is rendered for its repository. It gets the image that runs use unless a dispatch
//! names another. If the model provider is a cloud, it also gets the step that assumes the cloud
//! role. Other repositories get no permission to issue identity tokens.

use std::fmt;

use data_encoding::HEXLOWER;
use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ids::Repo;
use super::mapping::{Mapping, ModelProvider, PLAN_WORKFLOW};

/// Branch of the sync pull request.
pub const SYNC_BRANCH: &str = "sync/agent-implement";

/// Message of the sync commits. The service recognizes its commits on the branch by this message.
pub const SYNC_MESSAGE: &str = "Sync Agent Implement workflows";

/// Directory of workflows in a repository.
pub const WORKFLOWS_DIR: &str = ".github/workflows";

const IMPLEMENT: &str = include_str!("../../templates/workflows/agent-implement.yml");
const PLAN: &str = include_str!("../../templates/workflows/agent-plan.yml");
const COMMENT_TRIGGER: &str = include_str!("../../templates/workflows/comment-trigger.yml");
const WORKFLOW_PROMPT: &str = include_str!("../../templates/prompts/WORKFLOW.md");
const PLANNING_PROMPT: &str = include_str!("../../templates/prompts/PLANNING.md");
const CONFIG: &str = include_str!("../../templates/config.yml");

/// Public image in the templates, which the configured image replaces. It has git, curl, Node.js and npm. The
/// digest is that of the index of all processors.
const PUBLIC_IMAGE: &str = "docker.io/library/node:22-bookworm@sha256:363e1587494626837fa7f9a23bdb453d13b0ff3c67c705c2805cfc69c2d2fad7";

/// Placeholder in the templates for the registry path of images that a dispatch may name.
const IMAGE_PATH_PLACEHOLDER: &str = "ghcr.io/OWNER/";

/// Markers around the lines for repositories with a cloud provider.
const CLOUD_BEGIN: &str = "# cloud:begin";
const CLOUD_END: &str = "# cloud:end";

/// File that a repository should contain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    /// Path from the root of the repository.
    pub path: String,
    /// Content.
    pub text: String,
    /// Policy for existing files.
    pub sync_policy: SyncPolicy,
}

/// Policy for a file that exists in the repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncPolicy {
    /// Managed by the service: replaced if it differs.
    Managed,
    /// Created if missing, then owned by the team.
    CreateOnly,
}

/// Status of a file in a repository compared with its template.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "FileStatus")]
pub enum TemplateFileStatus {
    /// Up to date.
    Current,
    /// Differs from the template.
    Stale,
    /// Missing.
    Missing,
    /// Could not be read.
    Error,
}

impl Template {
    /// Returns the directory of the file. Empty for the root.
    pub fn folder(&self) -> &str {
        self.path.rsplit_once('/').map_or("", |(folder, _)| folder)
    }

    /// Returns the git blob SHA of the content.
    fn blob_sha(&self) -> String {
        let mut sha = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
        sha.update(format!("blob {}\0", self.text.len()).as_bytes());
        sha.update(self.text.as_bytes());
        HEXLOWER.encode(sha.finish().as_ref())
    }

    /// Returns the status of the file. `found` is the blob SHA of the file in the repository, if it
    /// exists.
    pub fn status(&self, found: Option<&str>) -> TemplateFileStatus {
        match (found, self.sync_policy) {
            (None, _) => TemplateFileStatus::Missing,
            (Some(_), SyncPolicy::CreateOnly) => TemplateFileStatus::Current,
            (Some(blob), SyncPolicy::Managed) if blob == self.blob_sha() => {
                TemplateFileStatus::Current
            }
            (Some(_), SyncPolicy::Managed) => TemplateFileStatus::Stale,
        }
    }
}

/// Error: two different workflows have the same file name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0} is named for two different workflows; correct the project's workflow files")]
pub struct WorkflowFileConflict(pub String);

/// Returns the files of a repository that these mappings share, sorted by path. `image` is the
/// configured image.
///
/// # Errors
/// Two different workflows have the same file name.
pub fn desired_templates(
    repo: &Repo,
    mappings: &[Mapping],
    image: Option<&str>,
) -> Result<Vec<Template>, WorkflowFileConflict> {
    let renderer = WorkflowRenderer {
        image: image.unwrap_or(PUBLIC_IMAGE),
        image_path: image.map_or_else(|| packages_of_owner(repo), image_path),
        is_cloud: mappings
            .iter()
            .any(|mapping| mapping.provider != ModelProvider::Direct),
    };
    let workflow = |file: &str, text: &str| Template {
        path: format!("{WORKFLOWS_DIR}/{file}"),
        text: renderer.render(text),
        sync_policy: SyncPolicy::Managed,
    };
    let starter = |path: &str, text: &str| Template {
        path: path.to_owned(),
        text: text.to_owned(),
        sync_policy: SyncPolicy::CreateOnly,
    };
    let mut all = vec![workflow("comment-trigger.yml", COMMENT_TRIGGER)];
    for mapping in mappings {
        all.push(workflow(&mapping.workflow_file, IMPLEMENT));
        if mapping.planning_enabled {
            all.push(workflow(planning_workflow_file(mapping), PLAN));
            all.push(starter("PLANNING.md", PLANNING_PROMPT));
        }
    }
    all.push(starter("WORKFLOW.md", WORKFLOW_PROMPT));
    all.push(starter(".agent-implement/config.yml", CONFIG));
    all.sort_by(|left, right| left.path.cmp(&right.path));
    all.dedup();
    match all.windows(2).find(|pair| pair[0].path == pair[1].path) {
        Some(pair) => Err(WorkflowFileConflict(pair[0].path.clone())),
        None => Ok(all),
    }
}

/// Returns the planning workflow file of a mapping.
pub fn planning_workflow_file(mapping: &Mapping) -> &str {
    mapping
        .planning_workflow_file
        .as_deref()
        .unwrap_or(PLAN_WORKFLOW)
}

/// Returns the registry path of the packages of the repository's owner. Only the owner can publish
/// below it.
fn packages_of_owner(repo: &Repo) -> String {
    format!("ghcr.io/{}/", repo.owner.to_ascii_lowercase())
}

/// Values to insert into a workflow.
struct WorkflowRenderer<'a> {
    image: &'a str,
    /// Registry path of images that a dispatch may name.
    image_path: String,
    is_cloud: bool,
}

impl WorkflowRenderer<'_> {
    /// Returns a workflow with the image, and with or without the cloud lines.
    fn render(&self, template: &str) -> String {
        let mut is_included = true;
        let mut kept = String::with_capacity(template.len());
        for line in template.lines() {
            match line.trim() {
                CLOUD_BEGIN => is_included = self.is_cloud,
                CLOUD_END => is_included = true,
                _ if is_included => {
                    kept.push_str(line);
                    kept.push('\n');
                }
                _ => {}
            }
        }
        kept.replace(PUBLIC_IMAGE, self.image)
            .replace(IMAGE_PATH_PLACEHOLDER, &self.image_path)
    }
}

/// Returns the registry path of an image, or the image without its tag if it has no path.
fn image_path(image: &str) -> String {
    match image.rsplit_once('/') {
        Some((path, _)) => format!("{path}/"),
        None => format!("{}:", image.split([':', '@']).next().unwrap_or(image)),
    }
}

/// Result of a sync.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SyncReport {
    /// Outcome.
    pub status: SyncStatus,
    /// Repository.
    pub repo: Repo,
    /// Branch that the pull request merges into.
    pub base_branch: String,
    /// Paths of the files that the pull request changes.
    pub changed_files: Vec<String>,
    /// Pull request, if there is one.
    pub pull: Option<SyncPullRequest>,
}

/// Outcome of a sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SyncStatus {
    /// All files are up to date.
    UpToDate,
    /// A pull request was opened.
    PrOpened,
    /// The open pull request was updated.
    PrUpdated,
    /// The open pull request already contains all changes.
    PrExisting,
}

/// Pull request of a sync.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyncPullRequest {
    /// Number.
    pub number: u64,
    /// Address of its page.
    pub url: String,
}

/// Text of the sync pull request for these paths. Formatted with `Display`.
pub struct SyncPullRequestBody<'a>(pub &'a [String]);

impl fmt::Display for SyncPullRequestBody<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "Brings the files that Agent Implement needs in this repository up to date:\n\n",
        )?;
        for path in self.0 {
            writeln!(f, "- `{path}`")?;
        }
        f.write_str(
            "\nAgent Implement manages the workflows: change their settings in the panel, not in the \
             files. `WORKFLOW.md`, `PLANNING.md` and `.agent-implement/config.yml` are starter files: \
             edit them in this pull request or later. They are never overwritten.\n\n\
             Runs need the secret `ANTHROPIC_API_KEY` (or the credentials of another agent or \
             provider, as the workflow lists them). Comments with `/agent-implement` start runs by \
             GitHub's webhook or by `comment-trigger.yml`. That workflow needs the variable \
             `AGENT_IMPLEMENT_CALLBACK_URL` and the secret `AGENT_IMPLEMENT_TRIGGER_SECRET`; without \
             them it fails, and only the webhook starts runs.\n",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::example_mapping;
    use serde_json::{Value, json};

    fn mapping(fields: Value) -> Mapping {
        let owner = "Acme".to_owned();
        Mapping {
            owner,
            ..example_mapping(&fields)
        }
    }

    fn paths(mappings: &[Mapping]) -> Vec<String> {
        let repo = mappings[0].target_repo();
        let all = desired_templates(&repo, mappings, None).unwrap();
        all.into_iter().map(|template| template.path).collect()
    }

    fn implement(fields: Value, image: Option<&str>) -> String {
        let mapping = mapping(fields);
        let all = desired_templates(&mapping.target_repo(), &[mapping], image).unwrap();
        let path = ".github/workflows/agent-implement.yml";
        all.into_iter().find(|one| one.path == path).unwrap().text
    }

    #[test]
    fn planning_adds_its_workflow_and_starter_file() {
        let plain = [
            ".agent-implement/config.yml",
            ".github/workflows/agent-implement.yml",
            ".github/workflows/comment-trigger.yml",
            "WORKFLOW.md",
        ];
        assert_eq!(paths(&[mapping(json!({}))]), plain);
        let planned =
            json!({"teamKey": "OPS", "planningEnabled": true, "planningWorkflowFile": "p.yml"});
        let both = paths(&[mapping(json!({})), mapping(planned)]);
        let more: Vec<_> = both
            .iter()
            .filter(|path| !plain.contains(&path.as_str()))
            .collect();
        assert_eq!(more, [".github/workflows/p.yml", "PLANNING.md"]);
    }

    #[test]
    fn sync_pull_request_names_both_ways_of_comments() {
        let body = SyncPullRequestBody(&["WORKFLOW.md".to_owned()]).to_string();
        let both = "start runs by GitHub's webhook or by `comment-trigger.yml`.";
        assert!(body.contains(both), "{body}");
    }

    #[test]
    fn rejects_two_workflows_in_one_file() {
        let twice = mapping(json!({
            "planningEnabled": true, "planningWorkflowFile": "a.yml", "workflowFile": "a.yml",
        }));
        let refused = desired_templates(&twice.target_repo(), &[twice], None);
        assert_eq!(
            refused,
            Err(WorkflowFileConflict(".github/workflows/a.yml".to_owned()))
        );
    }

    #[test]
    fn renders_the_image_and_its_path() {
        let usual = implement(json!({}), None);
        assert!(usual.contains(&format!("|| '{PUBLIC_IMAGE}')")), "{usual}");
        assert!(usual.contains("'ghcr.io/acme/'"), "{usual}");
        let own = implement(json!({}), Some("registry.example.com:5000/a/runner:next"));
        assert!(own.contains("'registry.example.com:5000/a/runner:next'"));
        assert!(own.contains("'registry.example.com:5000/a/'"), "{own}");
        assert!(!own.contains(PUBLIC_IMAGE), "{own}");
        for text in [usual, own] {
            assert!(!text.contains("OWNER"), "{text}");
            assert!(!text.contains("'docker.io/library/'"), "{text}");
        }
        assert_eq!(image_path("runner:next"), "runner:");
    }

    #[test]
    fn only_cloud_repositories_get_the_identity_permission() {
        let direct = implement(json!({}), None);
        let cloud = implement(
            json!({"provider": "cloud", "cloudRegion": "eu-west-1"}),
            None,
        );
        for word in ["id-token", "CLOUD_ROLE_ARN"] {
            assert!(cloud.contains(word) && !direct.contains(word), "{word}");
        }
        for text in [direct, cloud] {
            assert!(!text.contains("cloud:"), "{text}");
            let read: Result<Value, _> = serde_saphyr::from_str(&text);
            assert!(read.is_ok(), "{read:?}");
        }
    }

    #[test]
    fn compares_contents_by_blob_sha() {
        let file = |sync_policy| Template {
            path: "a/b".into(),
            text: "hello\n".into(),
            sync_policy,
        };
        let kept = file(SyncPolicy::Managed);
        let blob = "ce013625030ba8dba906f756967f9e9ca394464a";
        assert_eq!((kept.blob_sha().as_str(), kept.folder()), (blob, "a"));
        assert_eq!(kept.status(Some(blob)), TemplateFileStatus::Current);
        assert_eq!(kept.status(Some("other")), TemplateFileStatus::Stale);
        assert_eq!(
            file(SyncPolicy::CreateOnly).status(Some("other")),
            TemplateFileStatus::Current
        );
        assert_eq!(
            file(SyncPolicy::CreateOnly).status(None),
            TemplateFileStatus::Missing
        );
    }
}
