//! Findings about projects whose pull requests are merged by policy.

use fake_vendors::BranchProtection;

use super::*;

const CHECK: &str = "project-merge";

#[tokio::test(flavor = "multi_thread")]
async fn checks_what_a_merge_by_policy_needs() {
    let auto = mapping_with(&json!({"merge": {"mode": "auto"}}));
    let queue = mapping_with(&json!({"teamKey": "QUE", "merge": {"mode": "queue"}}));
    let people = mapping_with(&json!({"teamKey": "MAN"}));
    let stopped = stopped_env(vec![auto, queue, people]).await;
    let repo = stopped.vendors.github().repo("acme", "shop");
    let doctor =
        async || DoctorRun::run_doctor(&stopped, &options_with(&[], &[]), &["--port", "0"]).await;

    let report = doctor().await;
    let warnings = [
        (
            "acme/shop does not allow auto-merge (allow_auto_merge)",
            "Turn on Allow auto-merge",
        ),
        (
            "main of acme/shop is not protected",
            "Add a rule that requires",
        ),
    ];
    for (what, remedy) in warnings {
        report.assert_finding("warning", CHECK, what, remedy);
    }
    let what = "main of acme/shop has no merge queue";
    report.assert_finding(
        "error",
        CHECK,
        what,
        "set merge.mode of the project to auto",
    );
    let of = |report: &DoctorRun, team: &str| -> Vec<String> {
        let findings = report.findings.iter();
        let own = findings.filter(|one| one["check"] == CHECK && one["subject"] == team);
        own.map(|one| one["level"].as_str().unwrap().to_owned())
            .collect()
    };
    assert!(of(&report, "MAN").is_empty(), "people merge");

    repo.allow_auto_merge().protect(BranchProtection {
        required_checks: vec!["build".into()],
        ..BranchProtection::default()
    });
    assert_eq!(of(&doctor().await, "ENG"), ["ok"]);

    repo.deny_merge_method("squash").protect(BranchProtection {
        has_merge_queue: true,
        ..BranchProtection::default()
    });
    let report = doctor().await;
    let errors = [
        (
            "does not allow the method squash (allow_squash_merge)",
            "Turn on Allow squash merging",
        ),
        (
            "main of acme/shop requires the merge queue",
            "Set merge.mode of the project to queue",
        ),
    ];
    for (what, remedy) in errors {
        report.assert_finding("error", CHECK, what, remedy);
    }
    assert_eq!(of(&report, "QUE"), ["ok"]);
    stopped.vendors.stop_and_kill_runs().await;
}
