//! Settings that operators change in the panel, and overrides by the environment.

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

/// Setting as listed. `source` decides its value, and `restart` tells whether a restart would change it.
fn setting(runtime: Value, stored: Value, env: Value, source: &str, restart: bool) -> Value {
    let source = Some(source).filter(|source| !source.is_empty());
    json!({
        "runtimeValue": runtime, "storedValue": stored, "envValue": env,
        "overriddenByEnv": !env.is_null(), "source": source, "restartRequired": restart,
    })
}

#[tokio::test]
async fn setting_applies_after_a_restart_and_the_environment_overrides_it() {
    let store = Store::in_memory().unwrap();
    let (first, token) = server(&["--vm-sessions-region", "fra"], &store).await;
    let none = Value::Null;
    let shown = first.send("GET", PATH, &token, None).await.body;
    assert_eq!(
        shown["vmSessionsApp"],
        setting(none.clone(), none.clone(), none.clone(), "", false)
    );
    let region = |stored: Value| setting(json!("fra"), stored, json!("fra"), "env", false);
    assert_eq!(shown["vmSessionsRegion"], region(none.clone()));
    assert_eq!(shown["restartRequired"], json!(false));

    let body = json!({"vmSessionsApp": " sessions-1 ", "vmSessionsRegion": "ams"});
    let response = first.send("POST", PATH, &token, body.to_string()).await;
    assert_eq!(response.status, 200, "{response:?}");
    let stored = json!("sessions-1");
    assert_eq!(
        response.body["vmSessionsApp"],
        setting(none.clone(), stored.clone(), none.clone(), "", true)
    );
    assert_eq!(response.body["vmSessionsRegion"], region(json!("ams")));
    assert_eq!(response.body["restartRequired"], json!(true));
    assert_eq!(
        first.send("GET", PATH, &token, None).await.body,
        response.body
    );

    let (second, token) = server(&[], &store).await;
    let shown = second.send("GET", PATH, &token, None).await.body;
    assert_eq!(
        shown["vmSessionsRegion"],
        setting(json!("ams"), json!("ams"), none.clone(), "stored", false)
    );
    assert_eq!(
        shown["vmSessionsApp"],
        setting(
            stored.clone(),
            stored.clone(),
            none.clone(),
            "stored",
            false
        )
    );
    assert_eq!(shown["restartRequired"], json!(false));
    let response = second.send("POST", PATH, &token, r#"{"vmSessionsApp":""}"#.to_owned());
    let shown = response.await.body;
    assert_eq!(
        shown["vmSessionsApp"],
        setting(stored, none.clone(), none, "stored", true)
    );
    assert_eq!(
        shown["vmSessionsRegion"]["storedValue"],
        json!("ams"),
        "a missing field must stay unchanged"
    );
    assert_eq!(shown["restartRequired"], json!(true));
}

#[tokio::test]
async fn rejects_a_bad_setting_and_stores_nothing() {
    let store = Store::in_memory().unwrap();
    let (server, token) = server(&[], &store).await;
    let rule = |name: &str| {
        format!("{name} must be letters, digits and '-', beginning with a letter or digit")
    };
    let invalid = "Invalid request body".to_owned();
    for (body, error) in [
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
        let response = server.send("POST", PATH, &token, body.to_owned()).await;
        assert_eq!(response.error(), (400, error.as_str()), "{body}");
    }
    let shown = server.send("GET", PATH, &token, None).await.body;
    assert_eq!(shown["vmSessionsApp"]["storedValue"], Value::Null);
    assert_eq!(shown["vmSessionsRegion"]["runtimeValue"], json!("iad"));
    let unauthenticated = server.send("GET", PATH, "", None).await;
    assert_eq!(unauthenticated.error(), (401, "Unauthorized"));
    let wrong_method = server.send("DELETE", PATH, &token, None).await;
    assert_eq!(wrong_method.error(), (405, "Method not allowed"));
}

/// Without anything stored, the default is in force, and a restart changes nothing.
#[tokio::test]
async fn names_the_default_when_nothing_is_stored() {
    let (server, token) = server(&[], &Store::in_memory().unwrap()).await;
    let shown = server.send("GET", PATH, &token, None).await.body;
    let default = setting(json!("iad"), Value::Null, Value::Null, "default", false);
    assert_eq!(shown["vmSessionsRegion"], default);
    assert_eq!(shown["restartRequired"], json!(false));
}
