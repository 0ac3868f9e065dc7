//! What target repositories get from us: workflows that are kept as they are here, and starters that
//! are written once and are the team's from then on. (spec: *Versioning*)
//!
//! A workflow is stamped for its repository: with the image that its runs use unless a dispatch
//! names one, and, where the model is served by a cloud, with the step that takes on its role. A
//! repository that needs no cloud is not given the right to prove its identity to one.

use std::fmt;

use data_encoding::HEXLOWER;
use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY};
use serde::{Deserialize, Serialize};

use super::ids::Repo;
use super::mapping::{Mapping, ModelProvider, PLAN_WORKFLOW};

/// The branch that a change of templates is offered on.
pub const SYNC_BRANCH: &str = "sync/agent-implement";

/// The message of the commit on it, by which we know our own work there.
pub const SYNC_MESSAGE: &str = "Sync Agent Implement workflows";

/// Where the host looks for workflows.
pub const WORKFLOWS_DIR: &str = ".github/workflows";

const IMPLEMENT: &str = include_str!("../../templates/workflows/agent-implement.yml");
const PLAN: &str = include_str!("../../templates/workflows/agent-plan.yml");
const COMMENT_TRIGGER: &str = include_str!("../../templates/workflows/comment-trigger.yml");
const WORKFLOW_PROMPT: &str = include_str!("../../templates/prompts/WORKFLOW.md");
const PLANNING_PROMPT: &str = include_str!("../../templates/prompts/PLANNING.md");
const CONFIG: &str = include_str!("../../templates/config.yml");

/// What stands in the templates for the image, and for the place it comes from.
const IMAGE: &str = "ghcr.io/OWNER/agent-implement-runner:latest";
const IMAGE_PLACE: &str = "ghcr.io/OWNER/";

/// Around what only repositories on a cloud get.
const CLOUD_BEGIN: &str = "# cloud:begin";
const CLOUD_END: &str = "# cloud:end";

/// Longest name of an image.
const MAX_IMAGE: usize = 255;

/// A file that a repository is to have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    /// From the repository's root.
    pub path: String,
    pub text: String,
    pub sync_policy: SyncPolicy,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncPolicy {
    /// Ours: replaced wherever it differs.
    Managed,
    /// The team's, once it is there.
    CreateOnly,
}

/// How a file in a repository relates to its template.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TemplateFileStatus {
    Current,
    Stale,
    Missing,
    /// It could not be looked at.
    Error,
}

impl Template {
    /// The folder it stands in; empty for the root.
    pub fn folder(&self) -> &str {
        self.path.rsplit_once('/').map_or("", |(folder, _)| folder)
    }

    /// The name by which git knows its content.
    pub fn blob_sha(&self) -> String {
        let mut sha = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
        sha.update(format!("blob {}\0", self.text.len()).as_bytes());
        sha.update(self.text.as_bytes());
        HEXLOWER.encode(sha.finish().as_ref())
    }

    /// How it compares with what a repository has at its path: none, or git's name of it.
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

/// Why there is nothing to give to a repository: two workflows are wanted in one file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0} is named for two different workflows; correct the project's workflow files")]
pub struct WorkflowFileConflict(pub String);

/// The files of a repository that these mappings share, by path; `image` is the operator's own.
///
/// # Errors
/// When two different workflows are wanted in one file.
pub fn desired_templates(
    repo: &Repo,
    mappings: &[Mapping],
    image: Option<&str>,
) -> Result<Vec<Template>, WorkflowFileConflict> {
    let stamp = Stamp {
        image: image.map_or_else(|| default_image(repo), str::to_owned),
        is_cloud: mappings
            .iter()
            .any(|mapping| mapping.provider != ModelProvider::Direct),
    };
    let workflow = |file: &str, text: &str| Template {
        path: format!("{WORKFLOWS_DIR}/{file}"),
        text: stamp.on(text),
        sync_policy: SyncPolicy::Managed,
    };
    let seed = |path: &str, text: &str| Template {
        path: path.to_owned(),
        text: text.to_owned(),
        sync_policy: SyncPolicy::CreateOnly,
    };
    let mut all = vec![workflow("comment-trigger.yml", COMMENT_TRIGGER)];
    for mapping in mappings {
        all.push(workflow(&mapping.workflow_file, IMPLEMENT));
        if mapping.planning_enabled {
            all.push(workflow(planning_workflow_file(mapping), PLAN));
            all.push(seed("PLANNING.md", PLANNING_PROMPT));
        }
    }
    all.push(seed("WORKFLOW.md", WORKFLOW_PROMPT));
    all.push(seed(".agent-implement/config.yml", CONFIG));
    all.sort_by(|one, other| one.path.cmp(&other.path));
    all.dedup();
    match all.windows(2).find(|pair| pair[0].path == pair[1].path) {
        Some(pair) => Err(WorkflowFileConflict(pair[0].path.clone())),
        None => Ok(all),
    }
}

/// The file of a mapping's planning workflow.
pub fn planning_workflow_file(mapping: &Mapping) -> &str {
    mapping
        .planning_workflow_file
        .as_deref()
        .unwrap_or(PLAN_WORKFLOW)
}

/// The image of a repository's owner: never one from a place that somebody else may publish to.
fn default_image(repo: &Repo) -> String {
    let owner = repo.owner.to_ascii_lowercase();
    format!("ghcr.io/{owner}/agent-implement-runner:latest")
}

/// Whether it can be the name of a container image, so that it may be written into a workflow.
pub fn is_image_name(name: &str) -> bool {
    let known = |c: char| c.is_ascii_alphanumeric() || "._:/@-".contains(c);
    name.len() <= MAX_IMAGE
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.chars().all(known)
}

/// What a workflow is stamped with.
struct Stamp {
    image: String,
    is_cloud: bool,
}

impl Stamp {
    fn on(&self, template: &str) -> String {
        let mut is_open = true;
        let mut kept = String::with_capacity(template.len());
        for line in template.lines() {
            match line.trim() {
                CLOUD_BEGIN => is_open = self.is_cloud,
                CLOUD_END => is_open = true,
                _ if is_open => {
                    kept.push_str(line);
                    kept.push('\n');
                }
                _ => {}
            }
        }
        kept.replace(IMAGE, &self.image)
            .replace(IMAGE_PLACE, &place_of(&self.image))
    }
}

/// Where an image comes from: its registry and folder, or all but its tag where it names neither.
fn place_of(image: &str) -> String {
    match image.rsplit_once('/') {
        Some((place, _)) => format!("{place}/"),
        None => format!("{}:", image.split([':', '@']).next().unwrap_or(image)),
    }
}

/// What came of a sync.
///
/// Stored: fields may be added with a default, never renamed without a migration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SyncReport {
    pub status: SyncStatus,
    pub repo: Repo,
    pub base_branch: String,
    /// Paths of what the pull request changes.
    pub changed_files: Vec<String>,
    pub pull: Option<SyncPullRequest>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SyncStatus {
    /// The repository has everything.
    UpToDate,
    PrOpened,
    PrUpdated,
    /// An open pull request offers it all already.
    PrExisting,
}

/// The pull request that offers the change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyncPullRequest {
    pub number: u64,
    pub url: String,
}

/// The text of the pull request that offers these files.
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
            "\nWorkflows are kept as they are here: change them in the panel, not in place. \
             `WORKFLOW.md`, `PLANNING.md` and `.agent-implement/config.yml` are starters; edit \
             them as you like, here or later, they are never written again.\n\n\
             Runs need the secret `ANTHROPIC_API_KEY` (or the credentials of another agent or \
             provider, as the workflow lists them). For `/agent-implement` comments the variable \
             `AGENT_IMPLEMENT_CALLBACK_URL` and the secret `AGENT_IMPLEMENT_TRIGGER_SECRET` are \
             needed as well.\n",
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
    fn planning_comes_with_what_belongs_to_it() {
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
    fn two_workflows_never_share_a_file() {
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
    fn a_workflow_is_stamped_with_the_image_and_with_where_it_may_come_from() {
        let usual = implement(json!({}), None);
        assert!(usual.contains("'ghcr.io/acme/agent-implement-runner:latest'"));
        assert!(usual.contains("'ghcr.io/acme/'"), "{usual}");
        let own = implement(json!({}), Some("registry.example.com:5000/a/runner:next"));
        assert!(own.contains("'registry.example.com:5000/a/runner:next'"));
        assert!(own.contains("'registry.example.com:5000/a/'"), "{own}");
        for text in [usual, own] {
            assert!(!text.contains("OWNER"), "{text}");
        }
        assert_eq!(place_of("runner:next"), "runner:");
    }

    #[test]
    fn only_a_repository_on_a_cloud_may_prove_its_identity() {
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
    fn contents_are_compared_by_the_name_that_git_gives_them() {
        let file = |upkeep| Template {
            path: "a/b".into(),
            text: "hello\n".into(),
            sync_policy: upkeep,
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

    #[test]
    fn what_cannot_be_an_image_gets_into_no_workflow() {
        for good in ["runner", "ghcr.io/a/b:1.2", "h:5000/a@sha256:00"] {
            assert!(is_image_name(good), "{good}");
        }
        for bad in ["", "a b", "a'", "${{ x }}", "/a", "a\nb", &"a".repeat(300)] {
            assert!(!is_image_name(bad), "{bad}");
        }
    }
}
