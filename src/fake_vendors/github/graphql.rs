//! GraphQL endpoint for what REST does not offer: the draft flag, and resolved review threads.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::GitHubInner;
use super::check_rollup::CheckRollup;
use super::git::CommitSnapshot;
use super::graphql_fields::{comment_field, review_field, thread_field};
use super::issues_graphql::{IssueView, label_event_field};
use super::model::{
    AutoMerge, CheckKind, CheckRecord, CommentRecord, LabelEventRecord, LabelRecord, PullRecord,
    RepoRecord, ReviewRecord, ReviewThreadRecord,
};
use super::rest::{ApiCall, RepoPath, RestResult, ok_json};
use crate::clock::{self, iso_seconds as iso};
use crate::graphql::{FieldError, QueryPlan, Resolved, Resolver, Schema, execute};

#[derive(Clone)]
pub(super) enum Node {
    Root,
    User,
    /// Repository by owner and name.
    Repo(String, String),
    Pull(String, String, u64),
    Payload(&'static str, Box<Node>),
    Thread(Box<ReviewThreadRecord>),
    /// First comment of a review thread.
    ReviewComment(Box<ReviewThreadRecord>),
    Comment(Box<CommentRecord>),
    Review(Box<ReviewRecord>),
    AutoMerge(AutoMerge),
    /// Entry of the merge queue, by its pull request.
    MergeQueueEntry(Box<Node>),
    /// Branch by its name and head commit.
    Branch(String, String),
    /// File, by its content.
    Blob(String),
    /// Changed file of a pull request, by its path.
    PullFile(String),
    /// Commit by its SHA.
    Commit(String),
    /// Commit of a pull request, with its place in the list.
    PullCommit(usize, CommitSnapshot),
    /// The commit itself, of a commit of a pull request.
    CommitOfPull(CommitSnapshot),
    /// Author of a commit, by name and email.
    GitActor(String, String),
    /// Account by its login in the REST API.
    Actor(String),
    Rollup(CheckRollup),
    RollupContexts(CheckRollup),
    /// Check of a commit, and whether it is required.
    Check(Box<CheckRecord>, bool),
    /// Check suite by the slug of its App.
    CheckSuite(String),
    /// App by its slug.
    App(String),
    Issue(Arc<IssueView>),
    Label(LabelRecord),
    LabelEvent(LabelEventRecord),
    DependencySummary(Arc<IssueView>),
    /// Number of checks in a state, with its type.
    StateCount(&'static str, String, u64),
}

pub(super) struct Session<'a, 'b> {
    pub(super) call: &'a ApiCall<'b>,
}

impl ApiCall<'_> {
    pub(super) fn graphql(&self) -> RestResult {
        self.require_token()?;
        let schema = Schema::parse(include_str!("graphql.schema.graphql"))?;
        let query = self.body_str("query").unwrap_or_default();
        let empty = Map::new();
        let variables = self.body["variables"].as_object().unwrap_or(&empty);
        let plan = match QueryPlan::parse(&schema, query, variables, self.body_str("operationName"))
        {
            Ok(plan) => plan,
            Err(message) => {
                return ok_json(
                    json!({"errors": [{"message": message, "extensions": {"code": "undefinedField"}}]}),
                );
            }
        };
        let outcome = execute(&mut Session { call: self }, &plan);
        if outcome.errors.is_empty() {
            return ok_json(json!({"data": outcome.data}));
        }
        let errors = outcome.errors.into_iter().map(|(path, failure)| {
            let kind = failure.extensions["type"].as_str().unwrap_or("NOT_FOUND");
            json!({"message": failure.message, "type": kind, "path": path})
        });
        ok_json(json!({"data": outcome.data, "errors": errors.collect::<Vec<_>>()}))
    }
}

pub(super) fn failure(kind: &str, message: String) -> FieldError {
    FieldError {
        message,
        extensions: json!({"type": kind}),
    }
}

impl GitHubInner {
    fn find_pull(&self, node_id: &str) -> Option<(String, String, u64)> {
        let id: u64 = node_id.strip_prefix("PR_")?.parse().ok()?;
        self.model.read(|model| {
            model.repos.iter().find_map(|repo| {
                let pull = repo.pulls.iter().find(|pull| pull.id == id)?;
                Some((repo.owner.clone(), repo.name.clone(), pull.number))
            })
        })
    }
}

impl Session<'_, '_> {
    pub(super) fn with_pull<R>(
        &self,
        node: &Node,
        read: impl FnOnce(&RepoRecord, &PullRecord) -> R,
    ) -> Option<R> {
        let Node::Pull(owner, name, number) = node else {
            return None;
        };
        let repo_path = RepoPath { owner, name };
        let found = self.call.read_repo(&repo_path, |repo| {
            repo.pull(*number).map(|pull| read(repo, pull))
        });
        found.ok().flatten()
    }

    pub(super) fn find_node(&self, id: &str) -> Result<Node, FieldError> {
        let missing = || {
            failure(
                "NOT_FOUND",
                format!("Could not resolve to a node with the global id of '{id}'"),
            )
        };
        if let Some(issue) = self.issue_by_node_id(id) {
            return Ok(Node::Issue(issue));
        }
        let (owner, name, number) = self.call.host.find_pull(id).ok_or_else(missing)?;
        let repo_path = RepoPath {
            owner: &owner,
            name: &name,
        };
        self.call
            .require_permission(&repo_path, "pull_requests", "read")
            .map_err(|_| missing())?;
        self.call.host.refresh_pull_heads(&repo_path);
        Ok(Node::Pull(owner, name, number))
    }

    fn set_draft(
        &self,
        payload: &'static str,
        args: &Map<String, Value>,
        draft: bool,
    ) -> Result<Node, FieldError> {
        let id = args
            .get("input")
            .map(|input| input["pullRequestId"].clone())
            .unwrap_or_default();
        let node = self.find_node(id.as_str().unwrap_or_default())?;
        if let Node::Pull(owner, name, number) = &node {
            let repo_path = RepoPath { owner, name };
            let allowed = self
                .call
                .require_permission(&repo_path, "pull_requests", "write");
            allowed.map_err(|_| {
                failure("FORBIDDEN", "Resource not accessible by integration".into())
            })?;
            let host = &self.call.host;
            host.update_pull(&repo_path, *number, |pull| pull.draft = draft);
            let action = match draft {
                true => "converted_to_draft",
                false => "ready_for_review",
            };
            host.send_pull_webhook_of(&repo_path, *number, action);
        }
        Ok(Node::Payload(payload, Box::new(node)))
    }

    fn root_field(
        &self,
        name: &str,
        args: &Map<String, Value>,
    ) -> Result<Resolved<Node>, FieldError> {
        let text = |name: &str| args.get(name).and_then(Value::as_str).unwrap_or_default();
        Ok(Resolved::Node(match name {
            "viewer" => Node::User,
            "node" => self.find_node(text("id"))?,
            "repository" => {
                let repo_path = RepoPath {
                    owner: text("owner"),
                    name: text("name"),
                };
                let permission = self.call.require_permission(&repo_path, "metadata", "read");
                permission.map_err(|_| {
                    failure(
                        "NOT_FOUND",
                        format!(
                            "Could not resolve to a Repository with the name '{}/{}'.",
                            repo_path.owner, repo_path.name
                        ),
                    )
                })?;
                Node::Repo(repo_path.owner.to_owned(), repo_path.name.to_owned())
            }
            "markPullRequestReadyForReview" => {
                self.set_draft("MarkPullRequestReadyForReviewPayload", args, false)?
            }
            "convertPullRequestToDraft" => {
                self.set_draft("ConvertPullRequestToDraftPayload", args, true)?
            }
            mutation => self.change_merge(mutation, args)?,
        }))
    }
}

impl Resolver for Session<'_, '_> {
    type Node = Node;

    fn root(&self) -> Node {
        Node::Root
    }

    fn type_name(&self, node: &Node) -> &'static str {
        match node {
            Node::Root => "Query",
            Node::User => "User",
            Node::Repo(..) => "Repository",
            Node::Pull(..) => "PullRequest",
            Node::Payload(name, _) => name,
            Node::AutoMerge(_) => "AutoMergeRequest",
            Node::MergeQueueEntry(_) => "MergeQueueEntry",
            Node::Thread(_) => "PullRequestReviewThread",
            Node::ReviewComment(_) => "PullRequestReviewComment",
            Node::Comment(_) => "IssueComment",
            Node::Review(_) => "PullRequestReview",
            Node::Blob(_) => "Blob",
            Node::PullFile(_) => "PullRequestChangedFile",
            Node::Rollup(_) => "StatusCheckRollup",
            Node::RollupContexts(_) => "StatusCheckRollupContextConnection",
            Node::StateCount(name, ..) => name,
            Node::Check(check, _) => match check.kind {
                CheckKind::CheckRun => "CheckRun",
                CheckKind::CommitStatus => "StatusContext",
            },
            Node::CheckSuite(_) => "CheckSuite",
            Node::App(_) => "App",
            Node::Issue(_) => "Issue",
            Node::Label(_) => "Label",
            Node::LabelEvent(_) => "LabeledEvent",
            Node::DependencySummary(_) => "IssueDependenciesSummary",
            Node::Commit(_) | Node::CommitOfPull(_) => "Commit",
            Node::PullCommit(..) => "PullRequestCommit",
            Node::GitActor(..) => "GitActor",
            Node::Branch(..) => "Ref",
            Node::Actor(login) if login.ends_with("[bot]") => "Bot",
            Node::Actor(_) => "User",
        }
    }

    fn resolve_field(
        &mut self,
        node: &Node,
        name: &str,
        args: &Map<String, Value>,
    ) -> Result<Resolved<Node>, FieldError> {
        Ok(match (node, name) {
            (Node::Root, _) => self.root_field(name, args)?,
            (Node::User, _) => {
                let login = self.call.require_token().map(|token| token.login.clone());
                Resolved::Leaf(json!(login.unwrap_or_default()))
            }
            (Node::Payload(_, pull), "pullRequest") => Resolved::Node((**pull).clone()),
            (Node::Payload(_, pull), "mergeQueueEntry") => {
                Resolved::Node(Node::MergeQueueEntry(pull.clone()))
            }
            (Node::MergeQueueEntry(pull), _) => {
                let id = self.with_pull(pull, |_, pull| format!("MQE_{}", pull.id));
                Resolved::Leaf(json!(id))
            }
            (Node::Payload(..), _) => Resolved::Null,
            (Node::Repo(owner, repo), "pullRequest") => {
                let number = args.get("number").and_then(Value::as_u64).unwrap_or(0);
                self.call
                    .host
                    .refresh_pull_heads(&RepoPath { owner, name: repo });
                let pull = Node::Pull(owner.clone(), repo.clone(), number);
                match self.with_pull(&pull, |_, _| ()) {
                    Some(()) => Resolved::Node(pull),
                    None => {
                        return Err(failure(
                            "NOT_FOUND",
                            format!(
                                "Could not resolve to a PullRequest with the number of {number}."
                            ),
                        ));
                    }
                }
            }
            (
                Node::Repo(owner, repo),
                "issues" | "issue" | "label" | "visibility" | "hasIssuesEnabled",
            ) => self.issue_tracker_field(&RepoPath { owner, name: repo }, name, args)?,
            (Node::Issue(issue), _) => self.issue_field(issue, name, args)?,
            (Node::Label(label), "name") => Resolved::Leaf(json!(label.name)),
            (Node::Label(label), _) => Resolved::Leaf(json!(format!("LA_{}", label.name))),
            (Node::LabelEvent(event), _) => label_event_field(event, name),
            (Node::DependencySummary(issue), _) => {
                Resolved::Leaf(self.dependency_count(issue, name))
            }
            (
                Node::Repo(owner, repo),
                "autoMergeAllowed" | "squashMergeAllowed" | "mergeCommitAllowed"
                | "rebaseMergeAllowed",
            ) => self.merge_setting(&RepoPath { owner, name: repo }, name),
            (Node::Repo(owner, repo), "object") => {
                let expression = args.get("expression").and_then(Value::as_str);
                let repo_path = RepoPath { owner, name: repo };
                let text = self
                    .call
                    .file_text(&repo_path, expression.unwrap_or_default());
                text.map_or(Resolved::Null, |text| Resolved::Node(Node::Blob(text)))
            }
            (Node::Blob(text), _) => Resolved::Leaf(json!(text)),
            (Node::Repo(_, repo), "name" | "id") => Resolved::Leaf(json!(repo)),
            (Node::Repo(owner, repo), _) => Resolved::Leaf(json!(format!("{owner}/{repo}"))),
            (Node::Pull(owner, repo, _), "repository") => {
                Resolved::Node(Node::Repo(owner.clone(), repo.clone()))
            }
            (Node::Pull(..), "reviewThreads") => Resolved::Connection(self.threads(node)),
            (Node::Pull(..), "comments" | "reviews") => {
                Resolved::Connection(self.comments_or_reviews(node, name))
            }
            (Node::Pull(..), "latestOpinionatedReviews") => {
                Resolved::Connection(self.latest_opinions(node))
            }
            (Node::Pull(..), "statusCheckRollup") => self.check_rollup(node),
            (Node::Pull(..), "reviewDecision") => self.review_decision(node),
            (Node::Rollup(rollup), "contexts") => {
                Resolved::Node(Node::RollupContexts(rollup.clone()))
            }
            (Node::RollupContexts(rollup), "nodes") => {
                let checks = rollup.checks().iter().cloned();
                let checks =
                    checks.map(|(check, is_required)| Node::Check(Box::new(check), is_required));
                Resolved::Nodes(checks.collect())
            }
            (Node::Check(_, is_required), "isRequired") => Resolved::Leaf(json!(is_required)),
            (Node::Check(check, _), "checkSuite") => {
                Resolved::Node(Node::CheckSuite(check.app.clone()))
            }
            (Node::Check(check, _), "name" | "context") => Resolved::Leaf(json!(check.name)),
            (Node::Check(check, _), _) => Resolved::Leaf(json!(format!("CR_{}", check.id))),
            (Node::CheckSuite(slug), "app") => Resolved::Node(Node::App(slug.clone())),
            (Node::CheckSuite(slug) | Node::App(slug), _) => Resolved::Leaf(json!(slug)),
            (Node::RollupContexts(rollup), "checkRunCountsByState") => {
                state_counts("CheckRunStateCount", rollup, name)
            }
            (Node::RollupContexts(rollup), "statusContextCountsByState") => {
                state_counts("StatusContextStateCount", rollup, name)
            }
            (Node::Rollup(rollup) | Node::RollupContexts(rollup), _) => {
                Resolved::Leaf(rollup.field(name))
            }
            (Node::StateCount(_, state, _), "state") => Resolved::Leaf(json!(state)),
            (Node::StateCount(_, _, count), _) => Resolved::Leaf(json!(count)),
            (Node::Pull(..), "files") => Resolved::Connection(self.changed_files(node)),
            (Node::PullFile(path), _) => Resolved::Leaf(json!(path)),
            (Node::Pull(..), "commits") => Resolved::Connection(self.commits(node)),
            (Node::PullCommit(_, commit), "commit") => {
                Resolved::Node(Node::CommitOfPull(commit.clone()))
            }
            (Node::PullCommit(_, commit), _) => {
                Resolved::Leaf(json!(format!("PURC_{}", commit.sha)))
            }
            (Node::CommitOfPull(commit), "author") => {
                Resolved::Node(Node::GitActor(commit.author.clone(), commit.email.clone()))
            }
            (Node::CommitOfPull(commit), "parents") => {
                let parents = commit.parents.iter().cloned().map(Node::Commit);
                Resolved::Connection(parents.collect())
            }
            (Node::CommitOfPull(commit), _) => Resolved::Leaf(json!(commit.sha)),
            (Node::GitActor(name, _), "name") => Resolved::Leaf(json!(name)),
            (Node::GitActor(_, email), _) => Resolved::Leaf(json!(email)),
            (Node::Commit(_), "author") => Resolved::Null,
            (Node::Commit(_), "parents") => Resolved::Connection(Vec::new()),
            (Node::Pull(..), "author") => self.author(node),
            (Node::Pull(..), "baseRef") => self.base_branch(node),
            (Node::Pull(..), "autoMergeRequest") => self.auto_merge(node),
            (Node::AutoMerge(armed), "enabledBy") => {
                Resolved::Node(Node::Actor(armed.enabled_by.clone()))
            }
            (Node::AutoMerge(armed), "mergeMethod") => {
                Resolved::Leaf(json!(armed.method.to_uppercase()))
            }
            (Node::AutoMerge(_), _) => Resolved::Leaf(json!(iso(clock::now_ms()))),
            (Node::Pull(..), "mergedBy") => self.merged_by(node),
            (Node::Branch(_, head), "target") => Resolved::Node(Node::Commit(head.clone())),
            (Node::Branch(name, _), _) => Resolved::Leaf(json!(name)),
            (Node::Pull(..), "mergeCommit") => self.merge_commit(node),
            (Node::Thread(thread), "comments") => {
                Resolved::Connection(vec![Node::ReviewComment(thread.clone())])
            }
            (Node::Thread(thread), _) => Resolved::Leaf(thread_field(thread, name)),
            (Node::ReviewComment(thread), "author") => {
                Resolved::Node(Node::Actor(thread.author.clone()))
            }
            (Node::ReviewComment(thread), "body") => Resolved::Leaf(json!(thread.body)),
            (Node::ReviewComment(thread), "fullDatabaseId") => {
                Resolved::Leaf(json!(thread.id.to_string()))
            }
            (Node::ReviewComment(thread), "createdAt") => {
                Resolved::Leaf(json!(iso(thread.created_at)))
            }
            (Node::Comment(comment), "author") => {
                Resolved::Node(Node::Actor(comment.author.clone()))
            }
            (Node::Comment(comment), "viewerDidAuthor") => {
                let viewer = self.call.require_token().map(|token| token.login.as_str());
                Resolved::Leaf(json!(viewer.is_ok_and(|login| login == comment.author)))
            }
            (Node::Comment(comment), _) => Resolved::Leaf(comment_field(comment, name)),
            (Node::Review(review), "author") => Resolved::Node(Node::Actor(review.author.clone())),
            (Node::Review(review), "commit") => Resolved::Node(Node::Commit(review.sha.clone())),
            (Node::Review(review), _) => Resolved::Leaf(review_field(review, name)),
            (Node::Commit(oid), _) => Resolved::Leaf(json!(oid)),
            (Node::ReviewComment(thread), _) => {
                Resolved::Leaf(json!(format!("PRRC_{}", thread.id)))
            }
            (Node::Actor(login), _) => Resolved::Leaf(json!(login.trim_end_matches("[bot]"))),
            (Node::Pull(..), _) => self.pull_field(node, name),
        })
    }

    fn sort_key(&self, node: &Node, _: &str) -> (i64, i64) {
        match node {
            // Connections sort in descending order; negated IDs list the oldest first.
            Node::Thread(thread) => (0, -i64::try_from(thread.id).unwrap_or(0)),
            Node::Comment(comment) => (0, -i64::try_from(comment.id).unwrap_or(0)),
            Node::PullCommit(place, _) => (0, -i64::try_from(*place).unwrap_or(0)),
            Node::Review(review) => (0, -i64::try_from(review.id).unwrap_or(0)),
            Node::Issue(issue) => issue.sort_key(),
            Node::LabelEvent(event) => (0, -i64::try_from(event.id).unwrap_or(0)),
            _ => (0, 0),
        }
    }

    fn page_size_error(&self, max: i64) -> FieldError {
        failure(
            "EXCESSIVE_PAGINATION",
            format!("Requesting more records exceeds the `first` limit of {max} records."),
        )
    }
}

fn state_counts(kind: &'static str, rollup: &CheckRollup, name: &str) -> Resolved<Node> {
    let counts = rollup.counts(name).into_iter();
    let counts = counts.map(|(state, count)| Node::StateCount(kind, state, count));
    Resolved::Nodes(counts.collect())
}
