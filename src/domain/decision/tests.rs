use super::*;
use crate::issue::{IssueRef, OpenBlocker, RelatedIssues, StatusCategory, System, TriggerAuthor};
use crate::mapping;
use crate::plan_approval::PlanApproval;
use crate::string_arena::ArenaStr;
use proptest::prelude::*;
use serde_json::json;

fn mapping(team: &str, cap: u32) -> Mapping {
    Mapping {
        max_in_progress: cap,
        ..mapping::example_mapping(&json!({"teamKey": team}))
    }
}

fn issue(number: u32, stage: Stage) -> FlaggedIssue {
    FlaggedIssue {
        issue: IssueRef {
            system: System::Linear,
            id: IssueId::new(format!("id-{number}")),
            key: IssueKey::new(format!("ENG-{number}")),
            title: "t".into(),
            url: String::new(),
            marker_field: None,
        },
        team: "ENG".into(),
        facts: None,
        stage,
        priority: 3,
        created_at: Timestamp::from_millis(u64::from(number)),
        description: ArenaStr::default(),
        state_name: "Todo".into(),
        status_category: StatusCategory::Unstarted,
        open_blockers: vec![],
        related: RelatedIssues::default(),
        labels: None,
        agent_choice: Default::default(),
        trigger_author: TriggerAuthor::Trusted,
        has_trigger: true,
        updated_at: None,
    }
}

fn state(cap: u32) -> SchedulingState {
    SchedulingState {
        mappings: BTreeMap::from([("ENG".into(), mapping("ENG", cap))]),
        ..SchedulingState::default()
    }
}

fn rows_of(
    state: &SchedulingState,
    issues: &[FlaggedIssue],
) -> Vec<(String, DecisionOutcome, Option<WaitReason>, String)> {
    let row = |(_, decision): (FlaggedIssue, Decision)| {
        (
            decision.issue_identifier.to_string(),
            decision.outcome,
            decision.reason,
            decision.message,
        )
    };
    decide(state, issues.to_vec(), Timestamp::EPOCH)
        .into_iter()
        .map(row)
        .collect()
}

#[test]
fn work_on_a_pull_request_blocks_its_issue_and_takes_no_slot() {
    let state = SchedulingState {
        active_pull_request_issues: BTreeSet::from([IssueId::from("id-1")]),
        ..state(1)
    };
    let issues = [issue(1, Stage::Triggered), issue(2, Stage::Triggered)];
    let outcomes: Vec<DecisionOutcome> = rows_of(&state, &issues)
        .into_iter()
        .map(|row| row.1)
        .collect();
    assert_eq!(
        outcomes,
        [DecisionOutcome::InProgress, DecisionOutcome::Dispatched]
    );
    assert!(in_progress_counts(&state, [issue(1, Stage::PrOpened)].iter()).is_empty());
}

#[test]
fn only_a_recorded_approval_of_its_project_releases_a_plan() {
    let gate = |team: &str, approval: serde_json::Value| -> PlanGate {
        serde_json::from_value(json!({
            "issue": issue(1, Stage::PlanReady).issue,
            "team": team,
            "job": "01PLAN",
            "plannedAt": Timestamp::EPOCH,
            "approval": approval,
        }))
        .unwrap()
    };
    let approval = json!({"by": "Kim", "source": "marker", "at": Timestamp::EPOCH, "hash": "00"});
    let rows = [
        (None, Stage::Triggered, Ok(Phase::Planning)),
        (None, Stage::PlanComplete, Err(WaitReason::Approval)),
        (None, Stage::PlanReady, Err(WaitReason::Approval)),
        (None, Stage::PlanApproved, Err(WaitReason::Approval)),
        (
            Some(gate("ENG", json!(null))),
            Stage::PlanApproved,
            Err(WaitReason::Approval),
        ),
        (
            Some(gate("ENG", json!(null))),
            Stage::Triggered,
            Err(WaitReason::Approval),
        ),
        (
            Some(gate("ENG", approval.clone())),
            Stage::PlanApproved,
            Ok(Phase::Implementation),
        ),
        (
            Some(gate("ENG", approval.clone())),
            Stage::Triggered,
            Ok(Phase::Planning),
        ),
        (
            Some(gate("OPS", approval.clone())),
            Stage::PlanApproved,
            Err(WaitReason::Approval),
        ),
        (
            Some(gate("OPS", approval)),
            Stage::Triggered,
            Ok(Phase::Planning),
        ),
    ];
    for (gate, stage, expected) in rows {
        for plan_approval in [PlanApproval::Required, PlanApproval::None] {
            let mut state = state(1);
            let mapping = state.mappings.get_mut(&TeamKey::from("ENG")).unwrap();
            mapping.planning_enabled = true;
            mapping.plan_approval = plan_approval;
            state.plan_gates = gate
                .iter()
                .map(|gate| (IssueId::from("id-1"), gate.clone()))
                .collect();
            for system in [System::Linear, System::Jira, System::GitHub] {
                let mut issue = issue(1, stage);
                issue.issue.system = system;
                let mapping = state.mappings.values().next();
                let waits = awaited_person(&state, &issue, mapping).map(|(reason, ..)| reason);
                let phase = stage.required_phase(true).unwrap();
                let expected = match plan_approval {
                    PlanApproval::None => Ok(phase),
                    _ => expected,
                };
                let released = waits.map_or(Ok(phase), Err);
                assert_eq!(released, expected, "{system:?} {stage:?} {gate:?}");
            }
        }
    }
}

#[test]
fn budget_and_provider_limits_only_affect_issues_that_would_run() {
    let until = Timestamp::parse("2026-12-01T00:00:00Z").unwrap();
    let budget_message = "ENG has used $2.00 of its budget of $1.00 for 2026-11.".to_owned();
    let limited = SchedulingState {
        model_limited_until: BTreeMap::from([(("ENG".into(), None), until)]),
        ..state(3)
    };
    let spent = SchedulingState {
        over_budget: BTreeMap::from([("ENG".into(), budget_message.clone())]),
        ..limited.clone()
    };
    let issues = [issue(1, Stage::Triggered), issue(2, Stage::PrOpened)];
    let quota = "The model provider's usage limit is reached. Runs resume at 1 Dec 00:00 UTC.";
    // The budget has precedence, because it lasts longer.
    for (state, reason, message) in [
        (spent, WaitReason::Budget, budget_message.as_str()),
        (limited, WaitReason::Quota, quota),
    ] {
        let rows = rows_of(&state, &issues);
        assert_eq!(
            (rows[0].1, rows[0].2),
            (DecisionOutcome::Waiting, Some(reason))
        );
        assert_eq!(rows[0].3, message);
        assert_eq!(rows[1].1, DecisionOutcome::Done);
    }
}

#[test]
fn every_reason_has_its_message() {
    let id = || BTreeSet::from([IssueId::from("id-1")]);
    let mut other_team = issue(1, Stage::Triggered);
    other_team.team = "OPS".into();
    let mut blocked = issue(1, Stage::Triggered);
    blocked.open_blockers = vec![OpenBlocker {
        key: "ENG-9".into(),
        title: "x".into(),
    }];
    let mut paused = state(3);
    if let Some(mapping) = paused.mappings.get_mut("ENG") {
        mapping.paused = true;
    }
    let no_callback = BTreeMap::from([(
        ("ENG".into(), Phase::Implementation),
        "No runner.".to_owned(),
    )]);
    let reset = Timestamp::from_millis(1_800_000_000_000);
    let plain = || issue(1, Stage::Triggered);
    let rows = [
        (
            SchedulingState {
                host_limited_until: BTreeMap::from([("ENG".into(), reset)]),
                ..state(3)
            },
            plain(),
            WaitReason::Quota,
            "GitHub is rate limited until 15 Jan 08:00 UTC.",
        ),
        (
            state(3),
            other_team,
            WaitReason::NoMapping,
            "No mapping for team OPS. Add one in Projects.",
        ),
        (
            state(0),
            plain(),
            WaitReason::Concurrency,
            "ENG at concurrency cap (0/0). Waiting for a slot.",
        ),
        (
            SchedulingState {
                deduped_issues: id(),
                ..state(3)
            },
            plain(),
            WaitReason::Dedup,
            "Already dispatched recently. Waiting for the in-flight job.",
        ),
        (
            state(3),
            blocked,
            WaitReason::Blocked,
            "Blocked by ENG-9, still open.",
        ),
        (paused, plain(), WaitReason::Paused, "ENG is paused."),
        (
            SchedulingState {
                parked_issues: id(),
                ..state(3)
            },
            plain(),
            WaitReason::Parked,
            "Parked after repeated failures. Unpark it to try again.",
        ),
        (
            SchedulingState {
                taken_over: BTreeMap::from([(
                    "id-1".into(),
                    "Taken over by Kim since 15 Jan 08:00 UTC".to_owned(),
                )]),
                ..state(3)
            },
            plain(),
            WaitReason::TakenOver,
            "Taken over by Kim since 15 Jan 08:00 UTC.",
        ),
        (
            SchedulingState {
                ineligible: no_callback,
                ..state(3)
            },
            plain(),
            WaitReason::Ineligible,
            "No runner.",
        ),
    ];
    for (state, issue, reason, message) in rows {
        assert_eq!(
            rows_of(&state, &[issue]),
            [(
                "ENG-1".to_owned(),
                DecisionOutcome::Waiting,
                Some(reason),
                message.to_owned()
            )]
        );
    }
}

#[test]
fn planned_issues_come_first_then_urgent_then_old() {
    let mut urgent = issue(4, Stage::Triggered);
    urgent.priority = 1;
    let order = [
        issue(3, Stage::Triggered),
        issue(2, Stage::Triggered),
        urgent,
        issue(9, Stage::PlanComplete),
    ];
    let keys: Vec<String> = rows_of(&state(9), &order)
        .into_iter()
        .map(|row| row.0)
        .collect();
    assert_eq!(keys, ["ENG-9", "ENG-4", "ENG-2", "ENG-3"]);
}

#[test]
fn markers_and_jobs_share_the_cap_and_an_issue_counts_once() {
    let mut state = state(3);
    state.active_issues.insert("id-1".into(), "ENG".into());
    state.active_issues.insert("id-2".into(), "ENG".into());
    let issues = [
        issue(1, Stage::Implementing),
        issue(3, Stage::Implementing),
        issue(4, Stage::Triggered),
    ];
    let last = rows_of(&state, &issues).pop();
    assert_eq!(
        last.map(|row| row.3).as_deref(),
        Some("ENG at concurrency cap (3/3). Waiting for a slot.")
    );
}

#[test]
fn an_issue_with_a_pending_effect_is_not_dispatched() {
    let mut state = state(3);
    state.issues_with_pending_effects.insert("id-1".into());
    assert_eq!(
        rows_of(&state, &[issue(1, Stage::Triggered)])[0].1,
        DecisionOutcome::InProgress
    );
}

fn any_issue() -> impl Strategy<Value = FlaggedIssue> {
    (
        0u32..40,
        prop::sample::select(&Stage::ALL),
        1u8..6,
        0u64..5,
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(|(number, stage, priority, created, blocked, mapped)| {
            let mut issue = issue(number, stage);
            issue.priority = priority;
            issue.created_at = Timestamp::from_millis(created);
            if blocked {
                issue.open_blockers = vec![OpenBlocker {
                    key: "ENG-99".into(),
                    title: "x".into(),
                }];
            }
            if !mapped {
                issue.team = "OPS".into();
            }
            issue
        })
}

fn ids(numbers: Vec<u32>) -> BTreeSet<IssueId> {
    numbers
        .into_iter()
        .map(|number| IssueId::new(format!("id-{number}")))
        .collect()
}

proptest! {
    #[test]
    fn decisions_keep_the_rules(
        issues in prop::collection::vec(any_issue(), 0..40),
        cap in 0u32..6,
        active in prop::collection::vec(0u32..40, 0..6),
        deduped in prop::collection::vec(0u32..40, 0..6),
        parked in prop::collection::vec(0u32..40, 0..6),
        pending in prop::collection::vec(0u32..40, 0..6),
        paused in prop::bool::weighted(0.2),
        seed in any::<u64>(),
    ) {
        let mut unique = BTreeMap::new();
        for issue in issues {
            unique.insert(issue.issue.id.clone(), issue);
        }
        let issues: Vec<FlaggedIssue> = unique.into_values().collect();
        let mut state = state(cap);
        state.mappings.values_mut().for_each(|mapping| mapping.paused = paused);
        state.active_issues = ids(active).into_iter().map(|id| (id, "ENG".into())).collect();
        (state.deduped_issues, state.parked_issues, state.issues_with_pending_effects) = (ids(deduped), ids(parked), ids(pending));
        let decided = decide(&state, issues.clone(), Timestamp::EPOCH);

        prop_assert_eq!(decided.len(), issues.len());
        let dispatched = decided.iter().filter(|(_, decision)| decision.outcome == DecisionOutcome::Dispatched);
        let mut taken = state.active_issues.len();
        taken += issues.iter().filter(|i| i.stage.is_in_progress() && i.team.as_str() == "ENG" && !state.active_issues.contains_key(&i.issue.id)).count();
        for (issue, _) in dispatched {
            taken += 1;
            prop_assert!(taken <= cap as usize, "over the cap");
            let id = &issue.issue.id;
            let is_excluded = state.active_issues.contains_key(id) || state.deduped_issues.contains(id) || state.parked_issues.contains(id) || state.issues_with_pending_effects.contains(id);
            prop_assert!(!is_excluded && !paused);
            prop_assert!(issue.open_blockers.is_empty() && issue.team.as_str() == "ENG");
        }
        // A page that is read twice returns its issues twice.
        let mut shuffled: Vec<FlaggedIssue> = issues.iter().chain(&issues[..issues.len() / 2]).cloned().collect();
        fastrand::Rng::with_seed(seed).shuffle(&mut shuffled);
        prop_assert_eq!(decide(&state, shuffled, Timestamp::EPOCH), decided);
    }
}

#[test]
fn an_issue_needs_a_mapping_of_its_system() {
    let of_jira = Mapping {
        ticketing: mapping::TicketingConfig::Jira {
            jql: "project = ENG".into(),
            repo_field_value: "shop".into(),
            status_field_override: None,
            repo_field_override: None,
        },
        ..mapping("ENG", 1)
    };
    let state = SchedulingState {
        mappings: BTreeMap::from([("ENG".into(), of_jira)]),
        ..SchedulingState::default()
    };
    let in_jira = |number| {
        let mut issue = issue(number, Stage::Triggered);
        issue.issue.system = System::Jira;
        issue
    };
    let issues = [
        issue(1, Stage::Implementing),
        issue(2, Stage::Triggered),
        in_jira(3),
    ];
    let outcomes: Vec<_> = rows_of(&state, &issues)
        .into_iter()
        .map(|row| row.2)
        .collect();
    assert_eq!(outcomes, [None, Some(WaitReason::NoMapping), None]);
    assert!(
        rows_of(&state, &issues)
            .iter()
            .any(|row| row.1 == DecisionOutcome::Dispatched)
    );
    assert!(in_progress_counts(&state, issues.iter()).is_empty());
}

/// Two projects of one repository with limits of their own; the issues are planned.
fn two_projects_of_a_repository() -> SchedulingState {
    let with = |team: &str, fields: serde_json::Value| {
        let mut all = json!({"teamKey": team, "maxInProgressAiIssues": 9});
        let fields = fields.as_object().unwrap().clone();
        all.as_object_mut().unwrap().extend(fields);
        (team.into(), mapping::example_mapping(&all))
    };
    SchedulingState {
        mappings: BTreeMap::from([
            with("ENG", json!({"maxOpenPulls": 2})),
            with("OPS", json!({"maxOpenPulls": 3})),
        ]),
        ..SchedulingState::default()
    }
}

fn reasons(state: &SchedulingState, issues: &[FlaggedIssue]) -> Vec<Option<WaitReason>> {
    rows_of(state, issues)
        .into_iter()
        .map(|row| row.2)
        .collect()
}

#[test]
fn what_a_poll_starts_counts_for_the_limits_of_every_project_of_the_repository() {
    let state = two_projects_of_a_repository();
    let of = |number, team: &str| FlaggedIssue {
        team: team.into(),
        ..issue(number, Stage::Triggered)
    };
    let issues = [
        of(1, "ENG"),
        of(2, "ENG"),
        of(3, "ENG"),
        of(4, "OPS"),
        of(5, "OPS"),
    ];
    let full = Some(WaitReason::ReviewCapacity);
    assert_eq!(reasons(&state, &issues), [None, None, full, None, full]);
    let rows = rows_of(&state, &issues);
    assert_eq!(
        rows[4].3,
        "Waits for the pull requests of ENG-1, ENG-2, ENG-4, which are running"
    );
    // Planning opens no pull request.
    let mut planning = state.clone();
    for mapping in planning.mappings.values_mut() {
        mapping.planning_enabled = true;
    }
    assert_eq!(reasons(&planning, &issues), [None; 5]);
}

#[test]
fn of_two_issues_with_a_common_file_the_first_by_priority_starts() {
    let mut state = two_projects_of_a_repository();
    let files = |files: &[&str]| files.iter().map(|file| (*file).to_owned()).collect();
    for mapping in state.mappings.values_mut() {
        mapping.max_open_pulls = None;
        mapping.planning_enabled = true;
    }
    state.declared_files = BTreeMap::from([
        ("id-1".into(), files(&["src/cart.rs"])),
        ("id-2".into(), files(&["src/lib.rs", "src/cart.rs"])),
        ("id-3".into(), files(&["src/lib.rs"])),
    ]);
    let urgent = FlaggedIssue {
        priority: 1,
        team: "OPS".into(),
        ..issue(2, Stage::PlanComplete)
    };
    let issues = [
        issue(1, Stage::PlanComplete),
        urgent,
        issue(3, Stage::PlanComplete),
        issue(4, Stage::PlanComplete),
        issue(5, Stage::Triggered),
    ];
    let rows = rows_of(&state, &issues);
    let outcome = |number: usize| {
        (
            rows[number].0.as_str(),
            rows[number].2,
            rows[number].3.as_str(),
        )
    };
    assert_eq!(
        outcome(0),
        ("ENG-2", None, "Dispatched for implementation.")
    );
    let waits = Some(WaitReason::Collision);
    assert_eq!(
        outcome(1),
        (
            "ENG-1",
            waits,
            "Changes src/cart.rs as ENG-2 does, which is running"
        )
    );
    assert_eq!(
        outcome(2),
        (
            "ENG-3",
            waits,
            "Changes src/lib.rs as ENG-2 does, which is running"
        )
    );
    // Without declared files, and for planning, nothing collides.
    assert_eq!((outcome(3).1, outcome(4).1), (None, None));
    // An issue that does not start claims no file.
    state.mappings.get_mut("OPS").unwrap().paused = true;
    let rows = rows_of(&state, &issues);
    assert_eq!(
        (rows[0].2, rows[1].2, rows[2].2),
        (Some(WaitReason::Paused), None, None)
    );
}

#[test]
fn outside_the_dispatch_hours_only_operators_start_runs() {
    let closed = SchedulingState {
        outside_hours: BTreeMap::from([("ENG".into(), "Closed.".to_owned())]),
        operator_retries: BTreeSet::from([IssueId::from("id-2")]),
        ..state(3)
    };
    let issues = [issue(1, Stage::Triggered), issue(2, Stage::Triggered)];
    assert_eq!(
        reasons(&closed, &issues),
        [Some(WaitReason::OutsideHours), None]
    );
}
