//! Plans that wait for an approval, on all ticketing systems: the ways to approve, and the rule of a project.

mod endings;
mod refusals;

use std::path::PathBuf;
use std::time::Duration;

use domain::issue::System;
use domain::job::{Job, JobKind};
use domain::mapping::Mapping;
use domain::plan_approval::{PlanApproval, PlanAutoApprove};
use fake_vendors::FakeAuthor;
use fake_vendors::scripted_agent::{Script, ScriptStep};
use reqwest::Method;
use serde_json::{Value, json};
use vendors::http::percent_encode;

use crate::planning::{PLANNING_PROMPT, planning_script};
use crate::test_env::TestEnv;
use crate::test_ticket::{
    SYSTEMS, TestTicket, call_on_command_line, example_key, example_team, mapping_for,
    poll_comments, settle, with_planning,
};

const PLAN: &str = "## Steps\n\n1. Write it\n\n## Files\n\n- `src/cart.rs`\n- `docs/cart.md`";

/// Beginning of the comment that asks for an approval.
const WAITS: &str = "The plan waits for approval.";

/// Mapping of the example team whose plans people approve.
fn gated_mapping(system: System) -> Mapping {
    Mapping {
        plan_approval: PlanApproval::Required,
        ..with_planning(mapping_for(system, example_team(system)))
    }
}

fn kim() -> FakeAuthor {
    FakeAuthor::person("Kim")
}

/// Ticket that is planned before it is implemented, and its environment.
struct Story {
    env: TestEnv,
    ticket: TestTicket,
    key: String,
}

impl Story {
    async fn start(system: System, change: impl FnOnce(&mut Mapping)) -> Self {
        let mut mapping = gated_mapping(system);
        change(&mut mapping);
        let env = TestEnv::with_manual_engine([mapping]).await;
        let (ticket, key) = create_ticket(&env, system, 7, PLAN);
        Self { env, ticket, key }
    }

    /// Starts with a plan that waits for an approval.
    async fn planned(system: System, change: impl FnOnce(&mut Mapping)) -> Self {
        let story = Self::start(system, change).await;
        story.ticket.trigger();
        story.waits(1).await;
        story
    }

    /// Waits until people were asked this number of times.
    async fn waits(&self, count: usize) {
        let asks = || self.ticket.count(WAITS) == count;
        self.env
            .tick_until("the plan waits for approval", asks)
            .await;
        settle(&self.env).await;
        assert_eq!(self.kinds(), vec![JobKind::Planning; count]);
    }

    fn kinds(&self) -> Vec<JobKind> {
        let jobs = self.env.jobs(&self.key);
        jobs.iter().map(|job| job.kind).collect()
    }

    /// Waits for the pull request of the ticket.
    async fn implemented(&self) {
        implemented(&self.env, &self.key).await;
    }

    /// Waits for a comment that begins so. No other one follows.
    async fn commented(&self, beginning: &str) {
        let is_written = || self.ticket.count(beginning) > 0;
        self.env.tick_until(beginning, is_written).await;
        settle(&self.env).await;
        poll_comments(&self.env).await;
        settle(&self.env).await;
        let comments = self.ticket.comments();
        assert_eq!(self.ticket.count(beginning), 1, "{comments:?}");
    }

    /// Polls several times. Nothing is written on the ticket, and no run starts.
    async fn nothing_happens(&self) {
        let state = || (self.ticket.snapshot_text(), self.kinds());
        let before = state();
        for _ in 0..2 {
            self.env.advance_clock(Duration::from_secs(60));
            poll_comments(&self.env).await;
            settle(&self.env).await;
        }
        assert_eq!(state(), before);
    }

    /// Posts an action on the plan to the admin API.
    async fn post(&self, action: &str, body: Option<Value>) -> (u16, Value) {
        let path = format!("/api/plans/{}/{action}", percent_encode(&self.key));
        self.env.admin_request(Method::POST, &path, body).await
    }

    async fn plans(&self) -> Value {
        self.env.admin_get("/api/plans").await["plans"].clone()
    }

    fn prompt(&self) -> String {
        std::fs::read_to_string(prompt_file(&self.env, &self.key)).unwrap()
    }

    /// Checks that one approval is recorded, which names the ticket, who and how.
    async fn assert_approved(&self, actor: &str, by: &str, how: &str) {
        let approvals = audited(&self.env, "plan-approved", &self.key).await;
        let [approval] = &approvals[..] else {
            panic!("{approvals:?}");
        };
        let recorded = approval["actor"].as_str().unwrap();
        assert!(recorded.starts_with(actor), "{approval}");
        let detail = approval["detail"].as_str().unwrap();
        let (way, rest) = detail.split_once(", hash ").unwrap();
        assert_eq!(way, format!("by {by}, how: {how}"));
        let (hash, _) = rest.split_once(',').unwrap();
        let is_hash = hash.len() >= 12 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
        assert!(is_hash, "{detail}");
    }
}

/// Creates a ticket with a plan that the agent makes for it. Planning runs save their prompts.
fn create_ticket(env: &TestEnv, system: System, number: u32, plan: &str) -> (TestTicket, String) {
    let key = example_key(system, number);
    let ticket = TestTicket::create(env, system, &key, "Add a cart");
    ticket.describe("It holds things.");
    let script = planning_script([
        ScriptStep::save_prompt(prompt_file(env, &key)),
        ScriptStep::write("ai-output/comments/01-plan.md", plan),
        ScriptStep::message("Planned."),
    ]);
    env.set_agent_script(&key, script);
    (ticket, key)
}

/// File with the prompt of the latest planning run.
fn prompt_file(env: &TestEnv, key: &str) -> PathBuf {
    env.dir().join(format!("prompt-{}", percent_encode(key)))
}

async fn implemented(env: &TestEnv, key: &str) {
    // Ids of jobs sort by time, and the clock does not move by itself.
    env.advance_clock(Duration::from_secs(1));
    let is_done = || env.jobs(key).iter().any(Job::has_opened_pull_request);
    env.tick_until("the ticket is implemented", is_done).await;
    settle(env).await;
}

/// Entries of the audit with an action on a ticket.
async fn audited(env: &TestEnv, action: &str, key: &str) -> Vec<Value> {
    let audit = env.admin_get("/api/audit?limit=500").await;
    let entries = audit.as_array().unwrap().iter();
    let own = entries.filter(|entry| entry["action"] == action && entry["target"] == key);
    own.cloned().collect()
}

/// Status and error text of a refusal.
fn error(response: &(u16, Value)) -> (u16, &str) {
    (response.0, response.1["error"].as_str().unwrap_or_default())
}

const NOT_WAITING: (u16, &str) = (404, "No plan waits for approval");

/// Way in which a person approves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Comment,
    Marker,
    Api,
}

#[tokio::test(flavor = "multi_thread")]
async fn people_approve_plans_by_comment_marker_and_api() {
    for system in SYSTEMS {
        for way in [Way::Comment, Way::Marker, Way::Api] {
            let story = Story::planned(system, |mapping| mapping.max_in_progress = 1).await;
            let markers = match system {
                System::Jira => vec!["Plan Ready"],
                System::Linear | System::GitHub => vec!["Agent-Implement", "Plan-Complete"],
            };
            assert_eq!(story.ticket.markers(), markers);
            story.nothing_happens().await;
            let issues = story.env.admin_get("/api/blockers?all=true").await;
            assert_eq!(issues["blockers"][0]["reason"], "approval", "{issues}");
            let plans = story.plans().await;
            assert_eq!(plans[0]["approval"], Value::Null, "{plans}");

            let (actor, by, how) = match way {
                Way::Comment => {
                    let approval = "/agent-implement approve";
                    story.ticket.comment_as(&kim(), approval);
                    ("ticket:Kim", "Kim", "comment")
                }
                Way::Marker => {
                    story.ticket.mark_approved_as(&kim());
                    ("ticket:Kim", "Kim", "marker")
                }
                Way::Api => {
                    let approved = story.post("approve", None).await;
                    assert_eq!(approved, (200, json!({"approved": true})));
                    let shown = &story.plans().await[0]["approval"];
                    assert_eq!(shown["by"], "an operator", "{shown}");
                    let again = story.post("approve", None).await;
                    assert_eq!(error(&again), NOT_WAITING);
                    ("admin@127.0.0.1", "an operator", "operator")
                }
            };
            story.implemented().await;
            story.assert_approved(actor, by, how).await;
            let expected = [JobKind::Planning, JobKind::Implementation];
            assert_eq!(story.kinds(), expected);
            let reply = format!("Plan approved by {by}. The implementation starts.");
            assert_eq!(story.ticket.count(&reply), 1);
            assert_eq!(story.ticket.count(WAITS), 1);
            assert_eq!(story.env.repo().pulls().len(), 1);
            story.env.finish().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_approves_a_plan_on_the_command_line() {
    for system in SYSTEMS {
        let story = Story::planned(system, |_| ()).await;
        let Story { env, ticket, key } = story;
        let env = call_on_command_line(env, |call| {
            let (code, _, error) = call(&["approve", &example_key(system, 8)]);
            assert_eq!(code, 4, "{error}");
            let (code, output, error) = call(&["approve", &key]);
            assert_eq!(code, 0, "{error}");
            assert!(output.contains("Approved."), "{output}");
            let (code, _, error) = call(&["approve", &key]);
            assert_eq!(code, 4, "{error}");
        })
        .await;
        let story = Story { env, ticket, key };
        story.implemented().await;
        story
            .assert_approved("owner", "an operator", "operator")
            .await;
        assert_eq!(story.env.repo().pulls().len(), 1);
        story.env.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_approves_plans_inside_its_bounds_only() {
    for system in SYSTEMS {
        let story = Story::start(system, |mapping| {
            mapping.plan_approval = PlanApproval::Auto;
            mapping.plan_auto_approve = Some(PlanAutoApprove {
                max_files: 2,
                forbid_paths: vec!["Migrations/".to_owned()],
            });
        })
        .await;
        let outside = [
            (
                "## Files\n\n- `a.rs`\n- `b.rs`\n- `c.rs`",
                "The plan declares 3 files; at most 2 need no person.",
            ),
            (
                "## Files\n\n- `src/../migrations/1.sql`",
                "The plan changes migrations/1.sql, which needs a person.",
            ),
            ("1. Change `src/cart.rs`", "The plan declares no files."),
        ];
        let env = &story.env;
        let mut waiting = Vec::new();
        for (number, (plan, objection)) in (8..).zip(outside) {
            let (ticket, key) = create_ticket(env, system, number, plan);
            ticket.trigger();
            waiting.push((ticket, key, format!("{WAITS} {objection}")));
        }
        story.ticket.trigger();
        story.implemented().await;
        story.assert_approved("service", "auto", "auto").await;
        assert_eq!(story.ticket.count(WAITS), 0);
        let text = "The plan is inside the bounds of the project and needs no approval.";
        assert_eq!(story.ticket.count(text), 1);

        let ask = || {
            waiting
                .iter()
                .all(|(ticket, _, asks)| ticket.count(asks) == 1)
        };
        env.tick_until("the other plans wait", ask).await;
        settle(env).await;
        poll_comments(env).await;
        for (ticket, key, asks) in &waiting {
            assert_eq!(env.jobs(key).len(), 1, "{key}");
            assert_eq!(ticket.count(asks), 1);
        }
        let (ticket, key, _) = &waiting[0];
        ticket.comment_as(&kim(), "/agent-implement approve");
        implemented(env, key).await;
        let approvals = audited(env, "plan-approved", key).await;
        assert_eq!(approvals.len(), 1, "{approvals:?}");
        story.env.finish().await;
    }
}

/// Approvals may become required after a plan was made: the ticket shows it, and nothing is stored. In Jira, such a
/// ticket shows `Plan Approved`, which is an approval.
#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_nobody_recorded_is_approved_as_well() {
    for system in [System::Linear, System::GitHub] {
        let story = Story::planned(system, |_| ()).await;
        let gates = || story.env.store.read(store::plan_gates::all).unwrap();
        let gate = gates().remove(0);
        let remove = story
            .env
            .store
            .write(move |tx| store::plan_gates::remove(tx, &gate.issue.id));
        remove.await.unwrap();
        assert_eq!(error(&story.post("approve", None).await), NOT_WAITING);

        let is_recorded = || gates().iter().any(|gate| gate.hashes.is_some());
        story
            .env
            .tick_until("the plan is recorded", is_recorded)
            .await;
        settle(&story.env).await;
        assert_eq!(story.ticket.count(WAITS), 2);
        let approved = story.post("approve", None).await;
        assert_eq!(approved, (200, json!({"approved": true})));
        story.implemented().await;
        story.env.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_plans_again_if_the_ticket_changed_after_its_approval() {
    for system in SYSTEMS {
        let story = Story::planned(system, |_| ()).await;
        let plan = [
            ScriptStep::write("ai-output/comments/01-plan.md", PLAN),
            ScriptStep::message("Planned."),
        ];
        let without_change = Script::new()
            .pass_if_prompt_contains(PLANNING_PROMPT, plan)
            .pass([ScriptStep::message("There is nothing to do.")]);
        story.env.set_agent_script(&story.key, without_change);
        assert_eq!(story.post("approve", None).await.0, 200);
        story.env.advance_clock(Duration::from_secs(1));
        let has_failed = || {
            let jobs = story.env.jobs(&story.key);
            jobs.len() == 2 && jobs.iter().all(|job| !job.is_active())
        };
        story
            .env
            .tick_until("the implementation fails", has_failed)
            .await;
        settle(&story.env).await;

        story.ticket.retitle("Add a basket");
        let path = format!("/api/jobs/{}/retry", percent_encode(&story.key));
        let retried = story.env.admin_request(Method::POST, &path, None).await;
        assert_eq!(retried.0, 202, "{retried:?}");
        story.env.advance_clock(Duration::from_secs(1));
        let is_planned = || story.kinds().len() == 3 && story.ticket.count(WAITS) == 2;
        story.env.tick_until("the new plan waits", is_planned).await;
        settle(&story.env).await;
        assert_eq!(story.kinds()[2], JobKind::Planning);
        let notice = "Not approved: the title changed after the plan was made.";
        assert_eq!(story.ticket.count(notice), 1);
        story.env.finish().await;
    }
}
