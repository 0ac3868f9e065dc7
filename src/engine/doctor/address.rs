//! Addresses whose looks already tell that they cannot work.

use reqwest::Url;

use crate::app::App;
use crate::config::is_loopback;
use domain::check_result::CheckResult;
use vendors::chat::ChatKind;

/// What is wrong with the address that runs are given, before anybody is asked.
pub(super) fn check_callback_url(app: &App) -> Option<CheckResult> {
    let base = app.config.callback_base_url.as_ref()?;
    // Where the host of the runs is this machine too, as in a trial, its own address is right.
    let github = app.config.github.as_ref()?;
    if is_loopback(&github.api_url) {
        return None;
    }
    let check = "callback-address";
    if is_loopback(base) {
        let what = format!("{base} leads to the machine that asks, and runs are on others");
        return Some(
            CheckResult::error(check, what)
                .with_impact("No run elsewhere can report: each would be ended by its deadline.")
                .with_remedy("Set RUNNER_CALLBACK_BASE_URL to the address that the outside reaches this service at."),
        );
    }
    (!base.starts_with("https://")).then(|| {
        CheckResult::warning(check, format!("{base} is not https"))
            .with_impact("Runs send their tokens there; anyone on the network path can read and use them.")
            .with_remedy("Put a reverse proxy with TLS in front and set RUNNER_CALLBACK_BASE_URL to its https address.")
    })
}

/// Whether a chat webhook looks like one of its kind. The address itself is a credential and not shown.
pub(super) fn check_chat_webhook(app: &App) -> Option<CheckResult> {
    let notify = app.config.chat.as_ref()?;
    let url = Url::parse(notify.url.expose()).ok()?;
    let host = url.host_str().unwrap_or_default();
    let is_slack = host == "hooks.slack.com";
    let teams = [
        ".webhook.office.com",
        ".logic.azure.com",
        ".api.powerplatform.com",
    ];
    let is_teams = teams.iter().any(|ending| host.ends_with(ending));
    let (wanted, is_other) = match notify.kind {
        ChatKind::Slack => ("channel-a (Slack)", is_teams),
        ChatKind::Teams => ("channel-b (Teams)", is_slack),
    };
    let check = "chat-webhook";
    if is_other {
        let what = format!(
            "NOTIFY_TYPE is {wanted}, and NOTIFY_WEBHOOK_URL leads to the other kind of chat"
        );
        return Some(
            CheckResult::error(check, what)
                .with_impact("The chat refuses messages in the dress of the other.")
                .with_remedy("Set NOTIFY_TYPE to channel-a for Slack or channel-b for Teams."),
        );
    }
    let is_known = is_slack || is_teams || is_loopback(notify.url.expose());
    (!is_known).then(|| {
        CheckResult::warning(
            check,
            format!("NOTIFY_WEBHOOK_URL leads to {host}, which is no usual address of {wanted}"),
        )
        .with_impact("Messages may be refused; nothing is posted to find out.")
        .with_remedy("Compare it with the address that the chat shows for its incoming webhook.")
    })
}
