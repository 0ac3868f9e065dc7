//! Cancelled runs in machines and containers.

use domain::machine::HostKind;
use fake_vendors::InjectedFault;
use fake_vendors::scripted_agent::{Script, ScriptStep};
use serde_json::json;

use super::{MINUTE, cancel, drain, settle};
use crate::test_env::{EngineMode, TestEnv, TestEnvOptions};

/// State of a session when it is cancelled.
#[derive(Debug, Clone, Copy, PartialEq)]
enum SessionState {
    Reserved,
    Running,
    AnswerLost,
    HostDown,
}

async fn start_session(host: HostKind, state: SessionState) -> TestEnv {
    let env = TestEnv::with_options(TestEnvOptions {
        session_hosts: true,
        extra_flags: vec![("--runner-mode", host.as_str().to_owned())],
        engine: EngineMode::manual(),
        ..TestEnvOptions::default()
    })
    .await;
    env.set_agent_script("ENG-1", Script::new().pass([ScriptStep::Hang]));
    env.create_labelled_issue("ENG-1", "Add a feature");
    if state == SessionState::AnswerLost {
        let call = match host {
            HostKind::Vm => "POST /v1/apps",
            HostKind::Local => "/start",
            HostKind::Kubernetes => "PATCH /apis/batch",
        };
        env.faults_of(host)
            .inject_on_match(call, InjectedFault::DropResponse);
    }
    engine::poll::run_once(&env.app).await.unwrap();
    if state == SessionState::Reserved {
        return env;
    }
    drain(&env).await;
    env.wait_until("the machine exists", || {
        env.fake_host(host).snapshots().len() == 1
    })
    .await;
    env.faults_of(host)
        .set_outage(state == SessionState::HostDown);
    env
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_session_is_destroyed_in_every_state() {
    for host in HostKind::ALL {
        for state in [
            SessionState::Reserved,
            SessionState::Running,
            SessionState::AnswerLost,
            SessionState::HostDown,
        ] {
            let env = start_session(host, state).await;
            let job = env.jobs("ENG-1").pop().unwrap();
            let answer = cancel(&env, &job, json!({})).await;
            assert_eq!(answer.0, 200, "{host:?} {state:?} {answer:?}");
            if state == SessionState::HostDown {
                for _ in 0..3 {
                    drain(&env).await;
                    env.advance_clock(MINUTE);
                }
                let labels = env.vendors.linear().issue("ENG-1").labels();
                assert_eq!(labels, [""; 0], "the ticket does not wait for the host");
                assert_eq!(env.fake_host(host).snapshots().len(), 1);
                env.faults_of(host).set_outage(false);
            }
            settle(&env).await;
            let left = env.fake_host(host).snapshots();
            assert!(left.is_empty(), "{host:?} {state:?} {left:#?}");
            assert_eq!(
                env.jobs("ENG-1").len(),
                1,
                "{host:?} {state:?}: another run"
            );
            let labels = env.vendors.linear().issue("ENG-1").labels();
            assert_eq!(labels, [""; 0], "{host:?} {state:?}");
            let comments = env.comments("ENG-1");
            let cancelled = comments
                .iter()
                .filter(|text| text.contains(" cancelled by "));
            assert_eq!(cancelled.count(), 1, "{host:?} {state:?} {comments:#?}");
            env.finish().await;
        }
    }
}
