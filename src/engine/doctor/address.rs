//! Checks of addresses that cannot work, without sending a request.

use reqwest::Url;

use crate::app::App;
use crate::config::is_loopback;
use domain::check_result::CheckResult;
use vendors::chat::ChatKind;

/// Checks the callback URL of runs.
pub(super) fn check_callback_url(app: &App) -> Option<CheckResult> {
    let base = app.core.config.callback_base_url.as_ref()?;
    // In a trial GitHub's API is on this machine too, so a loopback address is correct.
    let github = app.vendors.credentials.github.as_ref()?;
    if is_loopback(&github.api_url) {
        return None;
    }
    let check = "callback-address";
    if is_loopback(base) {
        let what = format!("{base} is a loopback address, but runs execute on other machines");
        return Some(
            CheckResult::error(check, what)
                .with_impact("No run on another machine can report; each would end with its timeout.")
                .with_remedy("Set RUNNER_CALLBACK_BASE_URL to the address at which other machines reach this service."),
        );
    }
    (!base.starts_with("https://")).then(|| {
        CheckResult::warning(check, format!("{base} is not https"))
            .with_impact("Runs send their tokens there. Anyone on the network path can read and use them.")
            .with_remedy("Put a reverse proxy with TLS in front of the service and set RUNNER_CALLBACK_BASE_URL to its https address.")
    })
}

/// Checks that the chat webhook matches its type. The address is a credential, so only its host is
/// shown.
pub(super) fn check_chat_webhook(app: &App) -> Option<CheckResult> {
    let notify = app.vendors.credentials.chat.as_ref()?;
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
            "NOTIFY_TYPE is {wanted}, but NOTIFY_WEBHOOK_URL leads to the other kind of chat"
        );
        return Some(
            CheckResult::error(check, what)
                .with_impact("The chat rejects messages in the other format.")
                .with_remedy("Set NOTIFY_TYPE to channel-a for Slack or channel-b for Teams."),
        );
    }
    let is_known = is_slack || is_teams || is_loopback(notify.url.expose());
    (!is_known).then(|| {
        CheckResult::warning(
            check,
            format!("NOTIFY_WEBHOOK_URL leads to {host}, which is not a known address of {wanted}"),
        )
        .with_impact("The chat may reject messages. This check posts none.")
        .with_remedy("Compare it with the address that the chat shows for its incoming webhook.")
    })
}
