//! GitHub: a plain token, or an App that is created from a manifest.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use domain::connection::CredentialSet;
use domain::crypto::admin_token::generate_token;
use domain::github_app::creation_path;
use engine::app::{App, Connection};
use engine::config::GitHubAuthConfig;
use engine::github_app::{self, LIFETIME};
use engine::github_token;
use server::AppCreationRequest;

use super::candidate::Candidate;
use super::connections::Step;
use super::questions::Questions;
use super::temporary_service::TemporaryService;
use super::{InitArgs, Runner};

/// Pause between two looks at what the person has done in the browser.
const BROWSER_PAUSE: Duration = Duration::from_millis(300);

/// Pause between two requests that look for an installation of the App, or at the running service.
const REQUEST_PAUSE: Duration = Duration::from_secs(2);

/// Maximum time in which the person installs the App.
const INSTALLATION_TIMEOUT: Duration = Duration::from_secs(60 * 60);

/// Connects GitHub with a token, or with an App.
pub(super) async fn connect(
    candidate: &mut Candidate,
    questions: &Questions,
    arguments: &InitArgs,
    runner: Runner,
) -> anyhow::Result<()> {
    let organization = arguments.create_github_app.as_deref();
    if organization.is_some() && candidate.app().await?.vendors.github.is_none() {
        println!();
        create_app(candidate, organization.filter(|name| !name.is_empty())).await?;
    }
    let step = Step {
        vendor: "GitHub",
        connection: Connection::RepoHost,
        help: help(runner),
    };
    loop {
        step.connect(
            candidate,
            questions,
            async |candidate, questions| match questions.secret("GitHub token", "GITHUB_TOKEN")? {
                Some(token) => {
                    candidate.options.github_token = Some(token.expose().to_owned());
                    Ok(())
                }
                None => {
                    candidate.options.github_token = None;
                    offer_app(candidate, questions).await
                }
            },
        )
        .await?;
        match github_token::is_refused(&candidate.app().await?).await {
            Ok(true) if questions.can_ask() => {
                println!("{}.", github_token::REFUSAL_MESSAGE);
                candidate.options.github_token = None;
            }
            Ok(true) => bail!("{}", github_token::REFUSAL_MESSAGE),
            Ok(false) => break,
            Err(error) => bail!("{error}"),
        }
    }
    store(candidate)?;
    let may_wait = questions.can_ask() || organization.is_some();
    require_installation(candidate, may_wait).await
}

fn help(runner: Runner) -> &'static str {
    match runner {
        Runner::Ci => {
            "Create a fine-grained token for the one repository (https://github.com/settings/personal-access-tokens/new) \
             with Actions, Contents, Issues, Pull requests and Workflows: read and write. Or press Enter without a token \
             (--create-github-app): a GitHub App is created in two clicks, and runs get no more than their repository."
        }
        Runner::Local | Runner::Vm | Runner::Kubernetes => {
            "Create a fine-grained token for the one repository (https://github.com/settings/personal-access-tokens/new) \
             with Contents, Issues and Pull requests: read and write; Commit statuses: read. Or press Enter without a token \
             (--create-github-app): a GitHub App is created in two clicks, runs get no more than their repository, and \
             failing checks are repaired, which needs a permission that GitHub offers to no such token."
        }
    }
}

/// Stores credentials that flags, variables or answers have set. Those of an App that was created from a manifest are
/// in the store of the service.
fn store(candidate: &mut Candidate) -> anyhow::Result<()> {
    let config = candidate.config()?;
    match config
        .credentials
        .github
        .as_ref()
        .map(|github| &github.credentials)
    {
        Some(GitHubAuthConfig::Token(token)) => candidate.store_secret("GITHUB_TOKEN", token)?,
        Some(GitHubAuthConfig::App { id, private_key }) => {
            candidate.store("GITHUB_APP_ID", id)?;
            candidate.store_secret("GITHUB_APP_PRIVATE_KEY", private_key)?;
        }
        None => {}
    }
    candidate.store("GITHUB_API_URL", &config.vendor_addresses.github_api_url)
}

/// Asks for the owner of the App, and creates it.
async fn offer_app(candidate: &Candidate, questions: &Questions) -> anyhow::Result<()> {
    if candidate.config()?.credentials.has(CredentialSet::GitHub) {
        println!("{}", precedence(candidate));
        return Ok(());
    }
    let organization = loop {
        let question = "Organization that owns the repositories; Enter for your own account";
        let answer = questions.optional_text(question)?;
        match creation_path(answer.as_deref()) {
            Ok(_) => break answer,
            Err(problem) => println!("{problem}."),
        }
    };
    create_app(candidate, organization.as_deref()).await
}

fn precedence(candidate: &Candidate) -> String {
    format!(
        "GITHUB_TOKEN or GITHUB_APP_ID is set in {}, its credentials or the environment, which takes precedence over an \
         App. Remove it there, then run the command again.",
        candidate.files.env_file().display()
    )
}

/// Creates an App from a manifest. The person confirms it in a browser.
async fn create_app(candidate: &Candidate, organization: Option<&str>) -> anyhow::Result<()> {
    let config = candidate.config()?;
    if config.credentials.has(CredentialSet::GitHub) {
        bail!("{}", precedence(candidate));
    }
    let has_own_secret = config.credentials.has(CredentialSet::GitHubWebhook);
    let has_webhook = config.callback_base_url.is_some();
    let listen = config.listen;
    let data_dir = config.data_dir.display().to_string();
    let service = TemporaryService::start(config).await?;
    let created = match service.app() {
        Some(app) => create_here(app, organization).await,
        None => create_in_panel(&service, listen).await,
    };
    service.stop().await;
    created?;
    println!("Created the GitHub App. Its id and private key are stored encrypted in {data_dir}.");
    if has_own_secret && has_webhook {
        println!(
            "SCM_WEBHOOK_SECRET is set in this setup and stays in force: enter it as the webhook secret on the App's \
             settings page."
        );
    }
    Ok(())
}

/// Serves the pages of the creation until the App is stored.
async fn create_here(app: &App, organization: Option<&str>) -> anyhow::Result<()> {
    let listener = server::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
        .context("opening a port for the browser")?;
    let address = listener.local_addr()?;
    let request = Arc::new(AppCreationRequest {
        key: generate_token().map_err(anyhow::Error::msg)?,
        organization: organization.map(str::to_owned),
    });
    let port = address.port();
    println!(
        "Open this page in a browser, and create the App: http://{address}{}\nIf the browser runs on another computer, \
         first run there: ssh -L {port}:127.0.0.1:{port} HOST\nWaiting for the App. Ctrl-C stops; the command can be \
         repeated.",
        request.path()
    );
    let (stop, stopped) = oneshot::channel::<()>();
    let pages = tokio::spawn(server::serve_app_creation(
        app.clone(),
        listener,
        request,
        async {
            let _ = stopped.await;
        },
    ));
    let created = timeout(LIFETIME, async {
        while app.latest().vendors.github.is_none() {
            sleep(BROWSER_PAUSE).await;
        }
    });
    let created = created.await;
    drop(stop);
    // An open request is answered before the listener ends.
    let _ = pages.await;
    created.ok().with_context(|| {
        format!(
            "no App was created within {} minutes. Run the command again",
            LIFETIME.as_secs() / 60
        )
    })
}

/// Waits until the person has created the App in the panel of the running service.
async fn create_in_panel(service: &TemporaryService, listen: SocketAddr) -> anyhow::Result<()> {
    println!(
        "The service runs. Create the App in its panel: http://{listen}/admin/connections (GitHub, Connect, Create a \
         GitHub App)\nWaiting for the App. Ctrl-C stops; the command can be repeated."
    );
    let created = timeout(LIFETIME, async {
        loop {
            let all = service.get("/api/connections").await?;
            let mut all = all.as_array().into_iter().flatten();
            if all.any(|one| one["name"] == "github" && one["source"] != "none") {
                return anyhow::Ok(());
            }
            sleep(REQUEST_PAUSE).await;
        }
    });
    created
        .await
        .context("no App was created in time. Run the command again")?
}

/// Makes sure that an App is installed. A plain token needs no installation.
async fn require_installation(candidate: &Candidate, may_wait: bool) -> anyhow::Result<()> {
    let app = candidate.app().await?;
    let Some(github) = &app.vendors.github else {
        return Ok(());
    };
    if github.is_installed().await? {
        return Ok(());
    }
    let page = github_app::install_url(&app).await;
    let page = page.context("GitHub does not name the App. Run the command again")?;
    if !may_wait {
        bail!("the GitHub App is not installed yet. Install it on the repository: {page}");
    }
    println!(
        "Install the App on the repository: {page}\nWaiting for the installation. Ctrl-C stops; the command can be \
         repeated."
    );
    let installed = timeout(INSTALLATION_TIMEOUT, async {
        loop {
            sleep(REQUEST_PAUSE).await;
            match github.is_installed().await {
                Ok(true) => return anyhow::Ok(()),
                Err(error) if error.is_permanent() => return Err(error.into()),
                Ok(false) | Err(_) => {}
            }
        }
    });
    installed
        .await
        .context("the App was not installed in time. Run the command again")?
}
