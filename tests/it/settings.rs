//! What operators change at run time, and what the environment makes of it.

use serde_json::{Value, json};
use store::Store;

use crate::api_server::{ACCESS_CODE, ApiServer};

const PATH: &str = "/api/settings";

async fn server(flags: &[&str], store: &Store) -> (ApiServer, String) {
    let mut all = vec!["--admin-access-code", ACCESS_CODE];
    all.extend(flags);
    let server = ApiServer::start_with(&all, store.clone()).await;
    let token = server.sign_in().await;
    (server, token)
}

fn setting(runtime: Value, stored: Value, env: Value) -> Value {
    json!({
        "runtimeValue": runtime, "storedValue": stored, "envValue": env,
        "overriddenByEnv": !env.is_null(),
    })
}

#[tokio::test]
async fn a_setting_counts_from_the_next_start_and_the_environment_beats_it() {
    let store = Store::in_memory().unwrap();
    let (first, token) = server(&["--vm-sessions-region", "fra"], &store).await;
    let none = Value::Null;
    let shown = first.send("GET", PATH, &token, None).await.body;
    assert_eq!(
        shown["vmSessionsApp"],
        setting(none.clone(), none.clone(), none.clone())
    );
    let region = |stored: Value| setting(json!("fra"), stored, json!("fra"));
    assert_eq!(shown["vmSessionsRegion"], region(none.clone()));
    assert_eq!(shown["restartRequired"], json!(false));

    let body = json!({"vmSessionsApp": " sessions-1 ", "vmSessionsRegion": "ams"});
    let told = first.send("POST", PATH, &token, body.to_string()).await;
    assert_eq!(told.status, 200, "{told:?}");
    let stored = json!("sessions-1");
    assert_eq!(
        told.body["vmSessionsApp"],
        setting(none.clone(), stored.clone(), none.clone())
    );
    assert_eq!(told.body["vmSessionsRegion"], region(json!("ams")));
    assert_eq!(told.body["restartRequired"], json!(true));
    assert_eq!(first.send("GET", PATH, &token, None).await.body, told.body);

    let (second, token) = server(&[], &store).await;
    let shown = second.send("GET", PATH, &token, None).await.body;
    assert_eq!(
        shown["vmSessionsRegion"],
        setting(json!("ams"), json!("ams"), none.clone())
    );
    assert_eq!(
        shown["vmSessionsApp"],
        setting(stored.clone(), stored.clone(), none.clone())
    );
    assert_eq!(shown["restartRequired"], json!(false));
    let told = second.send("POST", PATH, &token, r#"{"vmSessionsApp":""}"#.to_owned());
    let told = told.await.body;
    assert_eq!(told["vmSessionsApp"], setting(stored, none.clone(), none));
    assert_eq!(
        told["vmSessionsRegion"]["storedValue"],
        json!("ams"),
        "left out, left alone"
    );
    assert_eq!(told["restartRequired"], json!(true));
}

#[tokio::test]
async fn a_bad_setting_is_refused_and_nothing_is_stored() {
    let store = Store::in_memory().unwrap();
    let (server, token) = server(&[], &store).await;
    let rule = |name: &str| {
        format!("{name} must be letters, digits and '-', beginning with a letter or digit")
    };
    let invalid = "Invalid request body".to_owned();
    for (body, sentence) in [
        ("", invalid.clone()),
        ("{", invalid.clone()),
        ("[]", invalid),
        (r#"{"vmSessionsApp":7}"#, rule("vmSessionsApp")),
        (r#"{"vmSessionsApp":"a/../b"}"#, rule("vmSessionsApp")),
        (
            r#"{"vmSessionsApp":"ok","vmSessionsRegion":"a b"}"#,
            rule("vmSessionsRegion"),
        ),
    ] {
        let told = server.send("POST", PATH, &token, body.to_owned()).await;
        assert_eq!(told.error(), (400, sentence.as_str()), "{body}");
    }
    let shown = server.send("GET", PATH, &token, None).await.body;
    assert_eq!(shown["vmSessionsApp"]["storedValue"], Value::Null);
    assert_eq!(shown["vmSessionsRegion"]["runtimeValue"], json!("iad"));
    let stranger = server.send("GET", PATH, "", None).await;
    assert_eq!(stranger.error(), (401, "Unauthorized"));
    let wrong = server.send("DELETE", PATH, &token, None).await;
    assert_eq!(wrong.error(), (405, "Method not allowed"));
}
