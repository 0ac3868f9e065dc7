//! Exercises every method of every vendor client.

use std::time::Duration;

use domain::effect::ChatMessage;
use domain::feedback::{FeedbackSource, PullRequestId, ReviewDecision};
use domain::ids::{JobId, Repo};
use domain::issue::{IssueRef, System};
use domain::machine::{HostKind, MachineLabels, MachineSpec, machine_name};
use domain::mapping::{Mapping, TicketingConfig};
use domain::run_config::RunInputs;
use domain::secret::Secret;
use domain::stage::Stage;
use domain::ticket_comment::CommentWatch;
use domain::time::Timestamp;
use engine::runner_image::{self, AgentVersions, RunnerImage};
use fake_vendors::{CheckKind, CheckReport, FakeService, FaultRates, InjectedFault, PodProblem};
use vendors::chat::{ChatKind, ChatWebhook};
use vendors::http::{Client, Redactor};
use vendors::scm::{
    AppCreation, DispatchError, GitHub, NewCommit, NewPullRequest, PullRequest,
    PullRequestSelection, RepoTokenAccess, RerunOutcome, ScmCredentials, TokenGaps,
    TokenPermission, TreeContent, TreeFile, WorkflowRunLog,
};
use vendors::session_hosts::MachineStartOutcome;
use vendors::ticketing::{CommentLookup, SelectField, TicketingClient};

use crate::test_env::{TestEnv, mapping};

/// Creates more than one page of labelled issues in an unmapped team. One has more blockers than a page
/// holds.
pub fn create_many_flagged_issues(env: &TestEnv) {
    let linear = env.vendors.linear();
    linear.ensure_team("OPS", "Operations");
    for number in 1..=260 {
        let issue = linear.issue(&format!("OPS-{number}"));
        issue.title("Somebody else's").add_label("Agent-Implement");
    }
    for number in 2..=9 {
        linear.issue("OPS-1").blocked_by(&format!("OPS-{number}"));
    }
}

pub async fn run_tickets_with_vendor_faults(env: &TestEnv) {
    env.set_fault_rates(&FaultRates {
        drop_request_rate: 0.1,
        drop_response_rate: 0.1,
        error_rate: 0.1,
        ..FaultRates::default()
    });
    let keys = ["ENG-1", "ENG-2"];
    for key in keys {
        env.create_labelled_issue(key, &format!("Feature {key}: <b>ünïcode</b> & @friends"));
    }
    for key in keys {
        assert_eq!(env.wait_for_job_end(key).await.state.status(), "completed");
    }
    env.set_fault_rates(&FaultRates::default());
}

fn shop() -> Repo {
    Repo::new("acme", "shop")
}

fn app_client(env: &TestEnv) -> GitHub {
    env.app.vendors.github.clone().unwrap()
}

fn client(vendor: &'static str) -> Client {
    Client::new(vendor, Redactor::default()).unwrap()
}

pub async fn read_repository_host(env: &TestEnv) {
    let (github, repo) = (app_client(env), shop());
    let token = ScmCredentials::Token(Secret::new(env.vendors.github().personal_token()));
    let plain = GitHub::new(client("GitHub"), &env.vendors.github_api_url(), token);
    for item in [&github, &plain] {
        item.probe().await.unwrap();
        item.app_settings().await.unwrap();
        item.token_scopes().await.unwrap();
        assert!(item.is_installed().await.unwrap());
        assert_eq!(item.default_branch(&repo).await.unwrap(), "main");
        assert_eq!(item.present_name(&repo).await.unwrap(), None);
        let branches = item.branches(&repo, 100).await.unwrap();
        assert!(
            branches.iter().any(|branch| branch == "main"),
            "{branches:?}"
        );
        let gaps = item.token_gaps(&repo, &TokenPermission::ALL).await.unwrap();
        assert!(gaps.is_none_or(|gaps| gaps == TokenGaps::default()));
        let visible = item.repositories(10).await.unwrap();
        assert!(visible.iter().any(|one| one.full_name == "acme/shop"));
        for purpose in [RepoTokenAccess::Read, RepoTokenAccess::Write] {
            item.repo_token(&repo, purpose).await.unwrap();
        }
    }
    let creation = AppCreation::new(client("GitHub"), &env.vendors.github_api_url());
    let unknown = creation.exchange_code("0a1b2c").await;
    assert!(unknown.unwrap_err().is_not_found());
    let named = plain.secret_names(&repo).await.unwrap();
    assert_eq!(named, Some(vec!["ANTHROPIC_API_KEY".to_owned()]));
    // The App lacks this permission and does not need it.
    assert_eq!(github.secret_names(&repo).await.unwrap(), None);
    let file = github.file(&repo, "README.md", "main").await.unwrap();
    assert_eq!(file.unwrap().text, "# Shop\n");
    let missing_file = github.file(&repo, "döcs/a b#c?.md", "main").await.unwrap();
    assert_eq!(missing_file, None);
    env.repo().set_collaborator_role("alice", "maintain");
    github.permission(&repo, "alice").await.unwrap();
    github.permission(&repo, "unknown-user").await.unwrap();

    let base = github.branch_sha(&repo, "main").await.unwrap().unwrap();
    let root = github.folder(&repo, "", &base).await.unwrap().unwrap();
    let readme = root.iter().find(|entry| entry.path == "README.md");
    let mut found_state = None;
    for text in ["one\n", "two\n"] {
        let file = |path: &str, content| TreeFile {
            path: path.to_owned(),
            content,
        };
        let files = [
            file("docs/näme.md", TreeContent::Text(text.into())),
            file(
                "docs/copy.md",
                TreeContent::Blob(readme.unwrap().sha.clone()),
            ),
        ];
        let new = NewCommit {
            parent: &base,
            message: "Sync",
            files: &files,
        };
        let written = github.commit_files(&repo, "sync/docs", found_state.as_deref(), &new);
        let sha = written.await.unwrap();
        found_state = github.branch_sha(&repo, "sync/docs").await.unwrap();
        assert_eq!(found_state, sha);
    }
    let tip = found_state.unwrap();
    assert_eq!(github.commit_message(&repo, &tip).await.unwrap(), "Sync");
    assert!(github.contains_commit(&repo, &tip, &base).await.unwrap());
    assert!(!github.contains_commit(&repo, &base, &tip).await.unwrap());
    let docs = github.folder(&repo, "docs", "sync/docs").await.unwrap();
    assert_eq!(docs.unwrap().len(), 2);
    assert_eq!(github.folder(&repo, "none", "main").await.unwrap(), None);
    assert!(
        github
            .missing_permissions(&repo, &[("workflows", "write")])
            .await
            .unwrap()
            .unwrap()
            .is_empty()
    );
}

pub async fn start_and_stop_runs(env: &TestEnv) {
    let (github, repo) = (app_client(env), shop());
    let started_after = Timestamp::from_millis(vendors::http::now_millis());
    let workflow = |script: &str| {
        format!(
            "on: workflow_dispatch\njobs:\n  a:\n    runs-on: x\n    steps:\n      - run: {script}\n"
        )
    };
    let (fails, lasts) = (workflow("echo no; exit 3"), workflow("sleep 60"));
    let files = [
        (".github/workflows/fails.yml", fails.as_str()),
        (".github/workflows/lasts.yml", lasts.as_str()),
    ];
    env.repo().commit("main", &files, "Workflows").unwrap();
    let start = async |file: &str| {
        let inputs = RunInputs::default();
        github.dispatch_workflow(&repo, file, "main", &inputs).await
    };
    // An old host rejects unknown fields; the client then retries in the old format.
    let github_faults = env.vendors.faults(FakeService::GitHub);
    github_faults.inject_on_match("missing.yml/dispatches", InjectedFault::ErrorStatus(400));
    let missing = start("missing.yml").await;
    assert!(
        matches!(missing, Err(DispatchError::Refused { .. })),
        "{missing:?}"
    );
    let failing = start("fails.yml").await.unwrap().unwrap();
    let lasting = start("lasts.yml").await.unwrap().unwrap();
    let status = |id: u64| {
        let runs = env.repo().runs();
        let run = runs.into_iter().find(|run| run.id == id);
        run.map(|run| run.status).unwrap_or_default()
    };
    env.wait_until("one run has failed and one is at work", || {
        status(failing.id) == "completed" && status(lasting.id) == "in_progress"
    })
    .await;
    let excerpt = github
        .log_excerpt(&repo, failing.id, Duration::ZERO)
        .await
        .unwrap();
    assert!(
        matches!(&excerpt, WorkflowRunLog::Excerpt(text) if text.contains("no")),
        "{excerpt:?}"
    );
    env.repo()
        .plant_artifact(failing.id, "report", b"an archive")
        .unwrap();
    let artifact = github.find_artifact(&repo, failing.id, "report");
    let artifact = artifact.await.unwrap().unwrap();
    let archive = github.download_artifact(&repo, &artifact, 10);
    assert_eq!(
        archive.await.unwrap().unwrap().body().as_ref(),
        b"an archive"
    );
    let too_large = github.download_artifact(&repo, &artifact, 9).await;
    assert!(too_large.unwrap().is_none());
    read_runs_of_checks(env, &github, failing.id).await;
    github.cancel_workflow_run(&repo, lasting.id).await.unwrap();
    env.wait_until("it is cancelled", || status(lasting.id) == "completed")
        .await;
    github.cancel_workflow_run(&repo, lasting.id).await.unwrap();
    assert!(
        github
            .workflow_run(&repo, lasting.id)
            .await
            .unwrap()
            .is_completed()
    );
    let runs = github
        .workflow_runs_since(&repo, started_after)
        .await
        .unwrap();
    assert!(runs.iter().any(|run| run.id == failing.id), "{runs:?}");
}

pub async fn work_on_a_pull_request(env: &TestEnv) {
    let (github, repo) = (app_client(env), shop());
    let new = NewPullRequest {
        title: "Sync the docs".into(),
        body: "Updates the docs.".into(),
        head: "sync/docs".into(),
        base: "main".into(),
        draft: true,
    };
    let pull = github.create_pull(&repo, &new).await.unwrap();
    let again = github.create_pull(&repo, &new).await.unwrap();
    assert_eq!(again.number, pull.number);
    let number = pull.number;
    let open = github.find_open_pull(&repo, "sync/docs").await.unwrap();
    assert_eq!(open.unwrap().number, number);
    let all = github.pulls_of_branch(&repo, "sync/docs").await.unwrap();
    assert_eq!(all.len(), 1);
    let updated = github.update_pull(&repo, number, "Sync", "Better.");
    assert_eq!(updated.await.unwrap().title, "Sync");
    let update = github.update_branch(&repo, number, &"0".repeat(40)).await;
    assert_eq!(
        update.unwrap_err().status(),
        Some(422),
        "the head is another"
    );
    github.set_ready(&repo, &pull.node_id).await.unwrap();
    // If the host rejects the repeated mutation, the client reads the current state.
    let github_faults = env.vendors.faults(FakeService::GitHub);
    github_faults.inject_on_match("markPullRequestReady", InjectedFault::ErrorStatus(422));
    github.set_ready(&repo, &pull.node_id).await.unwrap();
    assert!(!github.pull(&repo, number).await.unwrap().draft);
    github.set_draft(&repo, &pull.node_id).await.unwrap();
    assert!(github.pull(&repo, number).await.unwrap().draft);

    for place in 0..120 {
        env.repo()
            .add_comment(number, "alice", &format!("Remark {place}"));
    }
    let marker = "<!-- findings -->";
    let written = github
        .create_comment(&repo, number, &format!("{marker}\nOne."))
        .await
        .unwrap();
    let found = github.find_comment(&repo, number, marker).await.unwrap();
    assert_eq!(found.unwrap().id, written.id);
    let [second, third] = ["Two.", "Three."].map(|text| format!("{marker}\n{text}"));
    let updated = github.update_comment(&repo, written.id, &second).await;
    let put = github.put_comment(&repo, number, Some(updated.unwrap()), &third);
    assert_eq!(put.await.unwrap().id, written.id);
    for marker in [marker, "<!-- another -->"] {
        let body = format!("{marker}\nFour.");
        github
            .upsert_comment(&repo, number, marker, &body)
            .await
            .unwrap();
    }
    read_review_feedback(env, &github, &pull).await;
}

/// Reads what the service needs about a workflow run before its failed jobs run again.
async fn read_runs_of_checks(env: &TestEnv, github: &GitHub, run: u64) {
    let repo = shop();
    let head = env.repo().branch_head("main").unwrap();
    // A run that a dispatch started checks no commit.
    let found = github.checking_run(&repo, run, &head).await.unwrap();
    assert_eq!(found, None);
    let found = github.checking_run_of_suite(&repo, run, &head).await;
    assert_eq!(found.unwrap(), None);
    // The first job of the first attempt, in the numbers of the fake GitHub.
    let log = github
        .job_log_tail(&repo, run * 10_000 + 100)
        .await
        .unwrap();
    assert!(
        log.as_deref().is_some_and(|log| log.contains("no")),
        "{log:?}"
    );
    env.repo().reject_reruns(403);
    let refused = github.rerun_failed_jobs(&repo, run).await.unwrap();
    assert!(matches!(refused, RerunOutcome::Refused(_)), "{refused:?}");
}

/// Creates and reads more than one page of each kind of feedback.
async fn read_review_feedback(env: &TestEnv, github: &GitHub, pull: &PullRequest) {
    let (repo, bot) = (shop(), "lint-app[bot]");
    for place in 0..120 {
        let report = CheckReport {
            name: &format!("check {place}"),
            app: "lint-app",
            kind: CheckKind::CheckRun,
            conclusion: Some("success"),
            summary: "Fine.",
            text: "",
            url: None,
        };
        for kind in [CheckKind::CheckRun, CheckKind::CommitStatus] {
            let report = CheckReport { kind, ..report };
            env.repo().report_check("sync/docs", report).unwrap();
        }
        let state = ["CHANGES_REQUESTED", "COMMENTED"][place % 2];
        env.repo().add_review(pull.number, bot, state, "Hm.");
        let (line, body) = (place as u64, format!("Remark {place}"));
        env.repo()
            .add_review_comment(pull.number, bot, "README.md", line, &body);
    }
    env.repo()
        .add_review_comment(pull.number, "alice", "README.md", 1, "Hm.");
    let runs = github.check_runs(&repo, &pull.head_sha).await.unwrap();
    assert_eq!((runs.len(), runs[119].app_slug.as_str()), (120, "lint-app"));
    let statuses = github.commit_statuses(&repo, &pull.head_sha).await;
    let statuses = statuses.unwrap();
    assert_eq!(
        (statuses.len(), statuses[0].app_slug.as_str()),
        (120, "lint-app")
    );
    let checks = github.head_checks(&repo, &pull.head_sha).await.unwrap();
    assert_eq!(checks.len(), 240);
    env.repo().require_check("check 7");
    let required = github.required_checks(&repo, pull.number).await.unwrap();
    let required: Vec<_> = required.into_iter().collect();
    assert_eq!(required, [("check 7".to_owned(), "lint-app".to_owned())]);
    let reviews = github.reviews(&repo, pull.number).await.unwrap();
    assert_eq!(reviews.len(), 120);
    assert_eq!(reviews[0].app_slug.as_deref(), Some("lint-app"));
    assert_eq!(reviews[0].commit, pull.head_sha);
    let pull_id = PullRequestId::new(&repo, pull.number);
    let feedback = github.pull_feedback(&pull_id).await.unwrap();
    let count_of = |source| {
        let items = feedback.items.iter();
        items.filter(|item| item.comment.source == source).count()
    };
    assert_eq!(
        [
            count_of(FeedbackSource::Review),
            count_of(FeedbackSource::IssueComment)
        ],
        [100, 100]
    );
    let open = github.open_pulls(&repo).await.unwrap();
    assert!(open.iter().any(|item| item.number == pull.number));
    let places = [
        (repo.clone(), "main".to_owned()),
        (Repo::new("acme", "absent"), "main".to_owned()),
    ];
    let files = github.file_of_each("README.md", &places).await;
    assert!(
        matches!(files.as_slice(), [Ok(Some(_)), Ok(None)]),
        "{files:?}"
    );
    let changed = github.changed_paths(&pull_id).await.unwrap();
    assert!(!changed.paths.is_empty(), "{changed:?}");
    let selection = PullRequestSelection {
        numbers: [pull.number].into(),
        feedback: [pull.number].into(),
        files: [pull.number].into(),
    };
    let reports = github.pull_reports(&repo, &selection).await.unwrap();
    let report = &reports[&pull.number];
    assert!(report.is_draft);
    assert_eq!(report.feedback.as_ref(), Some(&feedback));
    assert_eq!(report.paths.as_ref(), Some(&changed));
    let readiness = &report.readiness;
    assert_eq!(
        readiness.checks.map(|checks| (checks.failed, checks.total)),
        Some((0, 240))
    );
    assert_eq!(
        readiness.review_decision,
        Some(ReviewDecision::ChangesRequested)
    );
    assert_eq!(readiness.mergeable, Some(true));
    let threads = github.review_threads(&repo, &pull.node_id).await.unwrap();
    assert_eq!((threads.len(), threads[119].line), (121, Some(119)));
    assert_eq!(threads[0].app_slug.as_deref(), Some("lint-app"));
    assert_eq!(threads[120].app_slug, None, "a person");
}

pub async fn exercise_linear(env: &TestEnv) {
    let account = env.app.vendors.account(System::Linear).unwrap();
    account.probe().await.unwrap();
    let TicketingClient::Linear(linear) = &account else {
        panic!("Linear is not configured")
    };
    assert!(linear.has_team("OPS").await.unwrap());
    let teams = linear.teams(10).await.unwrap();
    assert!(teams.iter().any(|team| team.key == "OPS"), "{teams:?}");
    let found_state = account
        .snapshot(&[], &CommentWatch::default())
        .await
        .unwrap();
    assert!(
        found_state.issues.len() >= 260,
        "{}",
        found_state.issues.len()
    );
    let blocked = found_state
        .issues
        .iter()
        .find(|issue| issue.issue.key.as_str() == "OPS-1");
    assert_eq!(blocked.unwrap().open_blockers.len(), 8);

    let ticket = env.vendors.linear().issue("OPS-260").snapshot().unwrap();
    let issue = IssueRef {
        system: System::Linear,
        id: ticket.id.as_str().into(),
        key: "OPS-260".into(),
        title: "Somebody else's".into(),
        url: String::new(),
        marker_field: None,
    };
    for stage in [
        Stage::Planning,
        Stage::PlanComplete,
        Stage::Implementing,
        Stage::PrOpened,
        Stage::ImplementationFailed,
    ] {
        account.set_stage(&issue, stage).await.unwrap();
    }
    for _ in 0..2 {
        account
            .create_comment(&issue, "effect-1", "Once.")
            .await
            .unwrap();
        let found_state =
            { account.look_up_comment(&issue, "effect-1", "Once.", Timestamp::EPOCH) }.await;
        assert_eq!(found_state.unwrap(), CommentLookup::Idempotent);
        account
            .link_pull_request(&issue, "PR #7", "https://github.test/acme/shop/pull/7")
            .await
            .unwrap();
    }
    let effects = ["effect-1".to_owned(), "effect-2".to_owned()];
    let ours = account.comments(&issue, &effects).await.unwrap();
    assert_eq!(ours, ["Once."]);
    for body in ["Twice.", "Once."] {
        account
            .edit_comment(&issue, "effect-1", body)
            .await
            .unwrap();
        let ours = account.comments(&issue, &effects).await.unwrap();
        assert_eq!(ours, [body]);
    }
    let never = account.edit_comment(&issue, "effect-2", "Never.").await;
    assert!(never.unwrap_err().is_not_found());
    let comment = account.create_comment(&issue, "effect-3", "Soon gone.");
    comment.await.unwrap();
    account.delete_comment(&issue, "effect-3").await.unwrap();
    let again = account.delete_comment(&issue, "effect-3").await;
    assert!(again.unwrap_err().is_not_found());
    let ops = Mapping {
        team_key: "OPS".into(),
        ..mapping()
    };
    let key = &issue.key;
    let found = account.find_issue(&[&mapping(), &ops], key).await.unwrap();
    assert_eq!((found.len(), &found[0].issue.id), (1, &issue.id));
    assert!(
        account
            .find_issue(&[&mapping()], key)
            .await
            .unwrap()
            .is_empty()
    );
    let nowhere = "OPS-9999".into();
    assert!(
        account
            .find_issue(&[&ops], &nowhere)
            .await
            .unwrap()
            .is_empty()
    );
    env.vendors.linear().issue("OPS-259").child_of("OPS-1");
    env.vendors.linear().issue("OPS-260").child_of("OPS-1");
    let issues = [issue.clone()];
    let contexts = account.run_contexts(&issues).await.unwrap();
    assert_eq!(contexts[&issue.id].siblings.len(), 1);
    assert!(account.closed_issues(&issues).await.unwrap().is_empty());
    env.vendors.linear().issue("OPS-260").complete();
    assert!(
        account
            .closed_issues(&issues)
            .await
            .unwrap()
            .contains(&issue.id)
    );
    assert_eq!(env.vendors.linear().issue("OPS-260").comments(), ["Once."]);
}

pub async fn exercise_jira(env: &TestEnv) {
    let jira_vendor = env.vendors.jira();
    let parent = jira_vendor.issue("OPS-1").title("Parent");
    let ticket = jira_vendor.issue("OPS-2").title("Child").child_of("OPS-1");
    let other = jira_vendor.issue("OPS-3").title("Other").child_of("OPS-1");
    ticket.clone().repo("shop").status("Ready");
    let Some(TicketingClient::Jira(jira)) = env.app.vendors.account(System::Jira) else {
        panic!("Jira is not configured")
    };
    jira.probe().await.unwrap();
    let mapping = Mapping {
        ticketing: TicketingConfig::Jira {
            jql: "project = OPS".into(),
            repo_field_value: "shop".into(),
            status_field_override: None,
            repo_field_override: None,
        },
        ..mapping()
    };
    assert!(jira.validate_mapping(&mapping).await.unwrap().is_empty());
    let config = &mapping.ticketing;
    assert!(jira.validate_ticketing(config).await.unwrap().is_empty());
    assert!(!jira.projects(10).await.unwrap().is_empty());
    assert!(!jira.validate_jql("a = 1").await.unwrap().is_empty());
    let found_state = jira
        .snapshot(&[&mapping], &CommentWatch::default())
        .await
        .unwrap()
        .issues;
    let issue = found_state[0].issue.clone();
    jira.set_stage(&issue, Stage::Implementing).await.unwrap();
    // The next search must include the written issue.
    jira.snapshot(&[&mapping], &CommentWatch::default())
        .await
        .unwrap();
    let since = env.app.core.now() - Duration::from_secs(60);
    for is_written in [false, true] {
        let body = "# Done\n\n- `all` of **it**\n\n```sh\nls\n```";
        let found_state = jira.has_comment(&issue, "effect-1", body, since).await;
        assert_eq!(found_state.unwrap(), is_written);
        if !is_written {
            jira.create_comment(&issue, "effect-1", body).await.unwrap();
        }
        let url = "https://github.test/acme/shop/pull/7";
        jira.link_pull_request(&issue, "PR #7", url).await.unwrap();
        let effects = ["effect-2".to_owned(), "effect-1".to_owned()];
        assert_eq!(jira.comments(&issue, &effects).await.unwrap(), [body]);
    }
    let folded = "Done.\n\n+++ The log\n\n```\nls\n```\n\n+++";
    jira.edit_comment(&issue, "effect-1", folded).await.unwrap();
    let ours = jira.comments(&issue, &["effect-1".to_owned()]).await;
    assert_eq!(ours.unwrap(), ["Done.\n\n**The log**\n\n```\nls\n```"]);
    let never = jira.edit_comment(&issue, "effect-2", "Never.").await;
    assert!(never.unwrap_err().is_not_found());
    let comment = jira.create_comment(&issue, "effect-3", "Soon gone.");
    comment.await.unwrap();
    jira.delete_comment(&issue, "effect-3").await.unwrap();
    let again = jira.delete_comment(&issue, "effect-3").await;
    assert!(again.unwrap_err().is_not_found());
    let found = jira.find_issue(&[&mapping], &issue.key).await.unwrap();
    assert_eq!(
        (found.len(), found[0].issue.marker_field.as_ref()),
        (1, issue.marker_field.as_ref())
    );
    for unmapped in ["OPS-3", "OPS-9999"] {
        let found = jira
            .find_issue(&[&mapping], &unmapped.into())
            .await
            .unwrap();
        assert!(found.is_empty(), "{unmapped}");
    }
    let siblings = jira.siblings(std::slice::from_ref(&issue)).await.unwrap();
    assert_eq!(siblings[&issue.id], ["OPS-3: Other (To Do)"]);
    let closed = jira
        .closed_issues(std::slice::from_ref(&issue))
        .await
        .unwrap();
    assert!(closed.is_empty(), "{closed:?}");
    let snapshot = ticket.snapshot().unwrap();
    assert_eq!((snapshot.comments.len(), snapshot.links.len()), (1, 1));
    let fields = jira
        .custom_fields(Some("agent-implement repo"))
        .await
        .unwrap();
    for issue_to_delete in [ticket, other, parent] {
        let options = jira.field_options(&fields[0].id).await.unwrap();
        assert_eq!(options[0].value, "shop");
        issue_to_delete.delete();
    }
    let field_options = jira.mapping_field_options(&mapping).await.unwrap();
    assert!(field_options[1].contains("shop"), "{field_options:?}");
    jira_vendor.grant_admin();
    assert_eq!(jira.field_options(&fields[0].id).await.unwrap().len(), 1);
    jira_vendor.remove_custom_fields();
    for repo_value in ["shop", "shop", "api"] {
        for field in SelectField::required(repo_value) {
            if let Some(gap) = jira.select_field_gap(&field).await.unwrap() {
                jira.fill_select_field_gap(&field, &gap).await.unwrap();
            }
            assert_eq!(jira.select_field_gap(&field).await.unwrap(), None);
        }
    }
}

pub async fn post_to_both_chats(env: &TestEnv) {
    let message = ChatMessage {
        title: "ENG-1: <!channel> opened".into(),
        title_url: Some("https://github.test/acme/shop/pull/7".into()),
        facts: vec![("Repository".into(), "acme/shop".into())],
        text: "It *works*. ".repeat(2_000),
    };
    let bare = ChatMessage {
        title_url: None,
        facts: vec![],
        text: String::new(),
        ..message.clone()
    };
    for (url, kind) in [
        (env.vendors.slack_url(), ChatKind::Slack),
        (env.vendors.teams_url(), ChatKind::Teams),
    ] {
        let chat = ChatWebhook::new(client("the chat"), Secret::new(url), kind);
        for message in [&message, &bare] {
            chat.post(message).await.unwrap();
        }
    }
}

/// Creates, inspects, stops and destroys a machine and a container.
pub async fn create_and_destroy_machines(env: &TestEnv) {
    let sessions = &env.app.vendors.sessions;
    env.vendors.docker().add_registry_image("acme/runner:1");
    for host in HostKind::ALL {
        let job = JobId::from("01JMACHINE");
        let spec = MachineSpec {
            name: machine_name(&job),
            image: "acme/runner:1".to_owned(),
            cpus: 2,
            memory_mb: 512,
            socket_folder: None,
            mirror_folder: None,
            is_isolated: false,
            node_selector: [("pool".to_owned(), "agents".to_owned())].into(),
            max_lifetime: Duration::from_secs(600),
            environment: [("GREETING".to_owned(), "hello".to_owned())].into(),
            labels: MachineLabels {
                instance: sessions.instance().to_owned(),
                job: job.clone(),
                issue: Some("ENG-1".into()),
                team: Some("ENG".into()),
                repo: Some(shop()),
                expires_at: Some(Timestamp::EPOCH),
            },
        };
        let start = async || match sessions.start(host, &spec).await.unwrap() {
            MachineStartOutcome::Started(machine) => machine,
            other => panic!("{other:?}"),
        };
        let refused = PodProblem::NotCreated("no pod may be created");
        env.vendors.kubernetes().set_pod_problem(Some(refused));
        let machine = start().await;
        sessions.list(host).await.unwrap();
        env.vendors.kubernetes().set_pod_problem(None);
        assert_eq!(start().await.id, machine.id, "the name is taken by our own");
        assert_eq!(sessions.list(host).await.unwrap().len(), 1);
        assert_eq!(sessions.list_all().await.len(), 3);
        let found = sessions.find(host, &job).await.unwrap().unwrap();
        let machine = found.reference();
        let inspected = sessions.inspect(&machine).await.unwrap().unwrap();
        assert_eq!(
            (&inspected.name, &inspected.labels),
            (&spec.name, &spec.labels)
        );
        sessions.stop(&machine).await.unwrap();
        sessions.log_tail(&machine).await.unwrap();
        for _ in 0..2 {
            sessions.destroy(&machine).await.unwrap();
        }
        assert_eq!(sessions.inspect(&machine).await.unwrap(), None);
        assert_eq!(sessions.log_tail(&machine).await.unwrap(), None);
    }
    sessions.cluster_report().await.unwrap();
    let labels = sessions.image_labels("acme/runner:1").await.unwrap();
    assert!(labels.is_some(), "the image was fetched for the container");
    let image = RunnerImage {
        docker_host: Some(env.vendors.docker_socket()),
        tag: "acme/runner:2".to_owned(),
        base: runner_image::default_base().to_owned(),
        versions: AgentVersions::default(),
    };
    image.build(&Redactor::default(), |_| {}).await.unwrap();
}
