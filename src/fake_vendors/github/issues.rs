//! In-process methods for what people do and see in the issues of a repository.

use std::time::Duration;

use serde_json::{Value, json};

use super::GitHubInner;
use super::api_json::user_json;
use super::fake_repo::FakeRepo;
use super::model::{IssueLabelChange, IssueRecord, Model, RepoRecord};
use super::rest::RepoPath;
use crate::clock;
use crate::clock::iso_seconds as iso;
use crate::html_page::HtmlPage;
use crate::http::HttpResponse;

/// Person who files issues and sets labels, unless a test names another one. The person has write access.
const PERSON: &str = "robin";

/// Handle of an issue by its number; the issue need not exist. `title` creates it. The other methods
/// change it, or do nothing if it does not exist. Each change is persisted before the method returns.
#[derive(Clone)]
pub struct FakeIssue {
    repo: FakeRepo,
    number: u64,
}

/// State of an issue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssueSnapshot {
    /// Node id.
    pub id: String,
    /// Number in the repository.
    pub number: u64,
    /// Title.
    pub title: String,
    /// Body in Markdown.
    pub body: String,
    /// Whether it is open.
    pub open: bool,
    /// Label names, in the order they were added.
    pub labels: Vec<String>,
    /// Comments, oldest first.
    pub comments: Vec<String>,
    /// Changes of labels since the issue was created, oldest first.
    pub history: Vec<IssueLabelChange>,
}

impl FakeRepo {
    /// Returns the handle of an issue, which need not exist.
    pub fn issue(&self, number: u64) -> FakeIssue {
        FakeIssue {
            repo: self.clone(),
            number,
        }
    }

    /// Returns all issues, oldest first.
    pub fn issues(&self) -> Vec<IssueSnapshot> {
        let read = self.host.model.read(|model| {
            let repo = &model.repos[model.find_repo(&self.owner, &self.name)?];
            let issues = repo.issues.iter();
            Some(issues.map(|issue| snapshot(repo, issue)).collect())
        });
        read.unwrap_or_default()
    }

    /// Sets who may see the repository: `public`, `internal` or `private`.
    pub fn set_visibility(&self, visibility: &str) -> &Self {
        self.update_model(|model| {
            let repo = model.ensure_repo(&self.owner, &self.name);
            repo.open_visibility = match visibility {
                "private" => String::new(),
                open => open.to_owned(),
            };
        });
        self
    }

    /// Turns the issues of the repository off.
    pub fn disable_issues(&self) -> &Self {
        self.update_model(|model| {
            model.ensure_repo(&self.owner, &self.name).issues_disabled = true;
        });
        self
    }

    /// Creates many issues at once, each with the label. Returns their number.
    pub fn create_labelled_issues(&self, count: u64, label: &str) -> u64 {
        self.update_model(|model| {
            for _ in 0..count {
                let id = model.next_id();
                let repo = model.ensure_repo(&self.owner, &self.name);
                let number = repo.next_number();
                repo.issues.push(IssueRecord {
                    labels: vec![label.to_owned()],
                    ..new_issue(id, number, &format!("Issue {number}"))
                });
            }
        });
        count
    }

    /// Moves the last updates of all issues into the past.
    pub fn age_issues(&self, by: Duration) {
        let millis = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
        self.update_model(|model| {
            let repo = model.ensure_repo(&self.owner, &self.name);
            for issue in &mut repo.issues {
                issue.updated_at -= millis;
            }
        });
    }
}

fn new_issue(id: u64, number: u64, title: &str) -> IssueRecord {
    let now = clock::now_ms();
    IssueRecord {
        id,
        number,
        title: title.to_owned(),
        author: PERSON.to_owned(),
        open: true,
        created_at: now,
        updated_at: now,
        ..IssueRecord::default()
    }
}

impl FakeIssue {
    /// Returns the number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns the repository.
    pub fn repo(&self) -> &FakeRepo {
        &self.repo
    }

    /// Sets the title. Creates the issue and its repository if they do not exist.
    pub fn title(self, title: &str) -> Self {
        let (owner, name, number) = (&self.repo.owner, &self.repo.name, self.number);
        let is_new = self.repo.update_model(|model| {
            let id = model.next_id();
            let repo = model.ensure_repo(owner, name);
            repo.collaborators
                .entry(PERSON.to_owned())
                .or_insert_with(|| "write".to_owned());
            if let Some(issue) = repo.issue_mut(number) {
                title.clone_into(&mut issue.title);
                return false;
            }
            repo.last_number = repo.last_number.max(number);
            repo.issues.push(new_issue(id, number, title));
            true
        });
        self.notify(PERSON, if is_new { "opened" } else { "edited" });
        self
    }

    /// Sets the body.
    pub fn describe(self, text: &str) -> Self {
        self.edit("edited", |issue| text.clone_into(&mut issue.body))
    }

    /// Sets the person who filed it.
    pub fn filed_by(self, login: &str) -> Self {
        self.edit("edited", |issue| login.clone_into(&mut issue.author))
    }

    /// Adds a label as the person with write access.
    pub fn add_label(self, name: &str) -> Self {
        self.add_label_as(PERSON, name)
    }

    /// Adds a label as this account. Accounts with a name that ends with `[bot]` are Apps.
    pub fn add_label_as(self, login: &str, name: &str) -> Self {
        self.set_label(login, name, true)
    }

    /// Removes a label as a person.
    pub fn remove_label(self, name: &str) -> Self {
        self.set_label(PERSON, name, false)
    }

    fn set_label(self, login: &str, name: &str, added: bool) -> Self {
        let (host, path) = (&self.repo.host, self.repo.path());
        host.set_label(&path, self.number, name, added, login);
        self.repo.update_model(|_| ());
        self
    }

    /// Adds a dependency: another issue of the same repository blocks this one.
    pub fn blocked_by(self, blocker: u64) -> Self {
        let blocker = self.repo.issue(blocker);
        self.blocked_by_issue(&blocker)
    }

    /// Adds a dependency: an issue of any repository blocks this one.
    pub fn blocked_by_issue(self, blocker: &FakeIssue) -> Self {
        let id = blocker.id();
        self.edit("edited", |issue| issue.blocked_by.extend(id))
    }

    /// Makes it a sub-issue.
    pub fn child_of(self, parent: u64) -> Self {
        let id = self.repo.issue(parent).id();
        self.edit("edited", |issue| issue.parent = id)
    }

    /// Closes it as completed.
    pub fn complete(self) -> Self {
        self.close("COMPLETED")
    }

    /// Closes it with a reason: `COMPLETED`, `NOT_PLANNED` or `DUPLICATE`.
    pub fn close(self, reason: &str) -> Self {
        self.edit("closed", |issue| {
            issue.open = false;
            issue.state_reason = Some(reason.to_owned());
        })
    }

    /// Adds a comment as a person.
    pub fn comment(self, body: &str) -> Self {
        self.repo.add_comment(self.number, PERSON, body);
        self
    }

    /// Deletes the issue.
    pub fn delete(self) -> Self {
        self.repo.update_model(|model| {
            let repo = model.ensure_repo(&self.repo.owner, &self.repo.name);
            repo.issues.retain(|issue| issue.number != self.number);
        });
        self
    }

    /// Moves the issue to another repository, where it gets another number and id.
    pub fn transfer_to(self, target: &FakeRepo) -> FakeIssue {
        let number = self
            .repo
            .update_model(|model| move_issue(model, &self, target));
        target.issue(number.unwrap_or_default())
    }

    fn id(&self) -> Option<u64> {
        self.repo.host.model.read(|model| {
            let repo = &model.repos[model.find_repo(&self.repo.owner, &self.repo.name)?];
            repo.issue(self.number).map(|issue| issue.id)
        })
    }

    /// Returns the issue's state; `None` if it does not exist.
    pub fn snapshot(&self) -> Option<IssueSnapshot> {
        self.repo.host.model.read(|model| {
            let repo = &model.repos[model.find_repo(&self.repo.owner, &self.repo.name)?];
            repo.issue(self.number).map(|issue| snapshot(repo, issue))
        })
    }

    /// Returns the label names; empty if the issue does not exist.
    pub fn labels(&self) -> Vec<String> {
        let snapshot = self.snapshot();
        snapshot.map(|issue| issue.labels).unwrap_or_default()
    }

    /// Returns the comment bodies, oldest first; empty if the issue does not exist.
    pub fn comments(&self) -> Vec<String> {
        let snapshot = self.snapshot();
        snapshot.map(|issue| issue.comments).unwrap_or_default()
    }

    /// Returns the URL of the issue's page.
    pub fn url(&self) -> String {
        let server = &self.repo.host.server_url;
        format!("{server}/{}/issues/{}", self.repo.full_name(), self.number)
    }

    fn edit(self, action: &str, edit: impl FnOnce(&mut IssueRecord)) -> Self {
        self.repo.update_model(|model| {
            let repo = model.ensure_repo(&self.repo.owner, &self.repo.name);
            if let Some(issue) = repo.issue_mut(self.number) {
                edit(issue);
                issue.updated_at = clock::now_ms().max(issue.updated_at + 1_000);
            }
        });
        self.notify(PERSON, action);
        self
    }

    fn notify(&self, sender: &str, action: &str) {
        let (host, path) = (&self.repo.host, self.repo.path());
        host.send_issue_webhook(&path, self.number, sender, action);
    }
}

fn move_issue(model: &mut Model, issue: &FakeIssue, target: &FakeRepo) -> Option<u64> {
    let id = model.next_id();
    let source = model.ensure_repo(&issue.repo.owner, &issue.repo.name);
    let at = source.issues.iter();
    let at = at.clone().position(|one| one.number == issue.number)?;
    let record = source.issues.remove(at);
    let target = model.ensure_repo(&target.owner, &target.name);
    let number = target.next_number();
    target.issues.push(IssueRecord {
        id,
        number,
        ..record
    });
    Some(number)
}

fn snapshot(repo: &RepoRecord, issue: &IssueRecord) -> IssueSnapshot {
    let comments = repo.comments.iter();
    let comments = comments.filter(|comment| comment.number == issue.number);
    IssueSnapshot {
        id: format!("I_{}", issue.id),
        number: issue.number,
        title: issue.title.clone(),
        body: issue.body.clone(),
        open: issue.open,
        labels: issue.labels.clone(),
        comments: comments.map(|comment| comment.body.clone()).collect(),
        history: issue.history.clone(),
    }
}

impl GitHubInner {
    pub(crate) fn issue_json(&self, repo: &RepoRecord, issue: &IssueRecord) -> Value {
        let (api, html) = (self.repo_api_url(repo), self.repo_html_url(repo));
        let labels = issue.labels.iter();
        json!({
            "id": issue.id, "node_id": format!("I_{}", issue.id), "number": issue.number,
            "url": format!("{api}/issues/{}", issue.number),
            "html_url": format!("{html}/issues/{}", issue.number),
            "title": issue.title, "body": issue.body, "user": user_json(&issue.author),
            "state": if issue.open { "open" } else { "closed" },
            "state_reason": issue.state_reason.as_ref().map(|reason| reason.to_lowercase()),
            "labels": labels.map(|name| json!({"name": name})).collect::<Vec<_>>(),
            "created_at": iso(issue.created_at), "updated_at": iso(issue.updated_at),
        })
    }

    /// Returns the HTML page of an issue.
    pub(crate) fn issue_page(&self, path: &RepoPath<'_>, number: &str) -> Option<HttpResponse> {
        let number = number.parse().ok()?;
        let (issue, comments) = self.model.read(|model| {
            let repo = &model.repos[model.find_repo(path.owner, path.name)?];
            let issue = snapshot(repo, repo.issue(number)?);
            let comments = repo.comments.iter();
            let comments = comments.filter(|comment| comment.number == number);
            let comments = comments.map(|comment| (comment.author.clone(), comment.body.clone()));
            Some((issue, comments.collect::<Vec<_>>()))
        })?;
        let mut page = HtmlPage::new(&format!("{} #{}", issue.title, issue.number));
        let state = if issue.open { "Open" } else { "Closed" };
        page.paragraph(&format!("{state} · labels: {}", issue.labels.join(", ")));
        page.preformatted(&issue.body);
        for (author, body) in comments {
            page.section(&author, &without_markers(&body));
        }
        page.comment_form();
        Some(page.into_response())
    }
}

/// Removes HTML comments, which Markdown does not show.
fn without_markers(body: &str) -> String {
    let mut shown = String::new();
    for (at, part) in body.split("<!--").enumerate() {
        let visible = match at {
            0 => part,
            _ => part.split_once("-->").map_or("", |(_, rest)| rest),
        };
        shown.push_str(visible);
    }
    shown.trim_end().to_owned()
}
