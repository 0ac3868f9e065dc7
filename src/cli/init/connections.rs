//! Credentials: each is asked for until its vendor accepts it, then stored.

use anyhow::bail;

use domain::crypto::admin_token::generate_token;
use domain::sanitize::single_line;
use engine::app::{Connection, ProbeStatus};
use engine::local_image;
use engine::runner_image::{self, AgentVersions, RunnerImage};
use vendors::ticketing::{JiraCredentials, LinearCredentials};

use super::candidate::Candidate;
use super::installed_service;
use super::questions::Questions;
use super::{Runner, TicketSystem};

/// Prefix of the OAuth tokens of Claude Code.
const CLAUDE_OAUTH_PREFIX: &str = "sk-ant-oat";

/// Stores the address of the service and the proxies, if they are set.
pub(super) fn store_network(candidate: &mut Candidate) -> anyhow::Result<()> {
    let config = candidate.config()?;
    if let Some(address) = &config.callback_base_url {
        candidate.store("RUNNER_CALLBACK_BASE_URL", address)?;
        let secret = match config.runner_token_secret {
            Some(secret) => secret,
            None => generate_token().map_err(anyhow::Error::msg)?,
        };
        candidate.store_secret("RUNNER_TOKEN_SECRET", &secret)?;
    }
    for (name, proxy) in [
        ("HTTPS_PROXY", &config.proxy.https_proxy),
        ("HTTP_PROXY", &config.proxy.http_proxy),
    ] {
        if let Some(proxy) = proxy {
            candidate.store_secret(name, &proxy.address)?;
        }
    }
    candidate.store("NO_PROXY", &config.proxy.no_proxy)
}

/// Stores the other settings that flags and variables set. A shell also has variables for other programs: those of
/// systems that the setup does not use are not stored.
pub(super) fn store_rest(
    candidate: &mut Candidate,
    runner: Runner,
    system: TicketSystem,
) -> anyhow::Result<()> {
    let config = candidate.config()?;
    for setting in candidate.given.0.clone() {
        let is_used = match setting.name.split('_').next() {
            Some("LINEAR") => system == TicketSystem::Linear,
            Some("JIRA") => system == TicketSystem::Jira,
            Some("DOCKER") => runner == Runner::Local,
            Some("KUBECONFIG") => config.kubernetes.is_some(),
            Some("ANTHROPIC" | "CLAUDE" | "OPENAI" | "GEMINI") => runner != Runner::Ci,
            Some("AWS") => config.standby.is_some(),
            _ => true,
        };
        match setting.is_secret {
            _ if !is_used => {}
            true => candidate.store_secret(&setting.name, &setting.value)?,
            false => candidate.store(&setting.name, setting.value.expose())?,
        }
    }
    Ok(())
}

/// Checks where runs execute.
pub(super) async fn connect_runner(
    candidate: &mut Candidate,
    questions: &Questions,
    runner: Runner,
) -> anyhow::Result<()> {
    match runner {
        Runner::Ci => Ok(()),
        Runner::Local => {
            let step = Step {
                vendor: "Container engine",
                connection: Connection::LocalContainers,
                help: match candidate.files.is_installed() {
                    true => {
                        "Docker or Podman is needed on this machine: apt-get install docker.io, or prepare Podman as in \
                         docs/install.md (Local containers) and set DOCKER_HOST to unix:///run/podman/podman.sock."
                    }
                    false => {
                        "Docker or Podman is needed on this machine: apt-get install docker.io, or set DOCKER_HOST to its \
                         address, for example unix:///run/user/1000/podman/podman.sock."
                    }
                },
            };
            let ask = async |candidate: &mut Candidate, questions: &Questions| {
                let address = questions.text(
                    "Address of the container engine",
                    "DOCKER_HOST",
                    Some("unix:///var/run/docker.sock"),
                )?;
                candidate.options.docker_host = Some(address);
                Ok(())
            };
            step.connect(candidate, questions, ask).await?;
            if let Some(address) = candidate.options.docker_host.clone() {
                if let Some(path) = address.strip_prefix("unix://") {
                    installed_service::require_visible(
                        &candidate.files,
                        "DOCKER_HOST",
                        path.as_ref(),
                    )?;
                }
                candidate.store("DOCKER_HOST", &address)?;
            }
            let image = candidate.options.local_runner_image.clone();
            candidate.store("LOCAL_RUNNER_IMAGE", &image)
        }
        Runner::Vm => {
            let step = Step {
                vendor: "Fly Machines",
                connection: Connection::VmSessions,
                help: "Create a deploy token of the app: fly tokens create deploy --app APP",
            };
            let ask = async |candidate: &mut Candidate, questions: &Questions| {
                ask_fly(candidate, questions)
            };
            step.connect(candidate, questions, ask).await?;
            let config = candidate.config()?;
            if let Some(token) = &config.credentials.vm_token {
                candidate.store_secret("VM_SESSIONS_TOKEN", token)?;
            }
            if let Some(app) = &config.vm_sessions.app {
                candidate.store("VM_SESSIONS_APP", app)?;
            }
            candidate.store("VM_API_URL", &config.vm_sessions.api_url)
        }
        Runner::Kubernetes => {
            let step = Step {
                vendor: "Kubernetes",
                connection: Connection::Kubernetes,
                help: "Apply packaging/kubernetes/runs.yaml (of a package: \
                       /usr/share/agent-implement/kubernetes/runs.yaml) to the cluster. It creates the namespace of \
                       runs and the Role that the service's account needs.",
            };
            let ask = async |candidate: &mut Candidate, questions: &Questions| {
                ask_kubernetes(candidate, questions)
            };
            step.connect(candidate, questions, ask).await?;
            let cluster = candidate.config()?.kubernetes;
            if let Some(path) = cluster.and_then(|cluster| cluster.kubeconfig) {
                // The service may have another working directory.
                let path = std::path::absolute(path)?;
                installed_service::require_visible(&candidate.files, "KUBECONFIG", &path)?;
                candidate.store("KUBECONFIG", &path.display().to_string())?;
            }
            match candidate.options.kubernetes_namespace.clone() {
                Some(namespace) => candidate.store("KUBERNETES_NAMESPACE", &namespace),
                None => Ok(()),
            }
        }
    }
}

fn ask_kubernetes(candidate: &mut Candidate, questions: &Questions) -> anyhow::Result<()> {
    let namespace = candidate.options.kubernetes_namespace.clone();
    let namespace = namespace.as_deref().or(Some("agent-implement-runs"));
    let namespace = questions.text("Namespace of runs", "--kubernetes-namespace", namespace)?;
    candidate.options.kubernetes_namespace = Some(namespace);
    let kubeconfig = candidate.options.kubeconfig.take();
    let kubeconfig = kubeconfig.map(|path| path.display().to_string());
    let kubeconfig = questions.text(
        "kubeconfig file of the cluster",
        "--kubeconfig",
        kubeconfig.as_deref(),
    )?;
    candidate.options.kubeconfig = Some(kubeconfig.into());
    ask_callback_address(candidate, questions)
}

fn ask_fly(candidate: &mut Candidate, questions: &Questions) -> anyhow::Result<()> {
    let app = candidate.options.vm_sessions_app.clone();
    let app = questions.text(
        "Fly app of the machines",
        "--vm-sessions-app",
        app.as_deref(),
    )?;
    candidate.options.vm_sessions_app = Some(app);
    let token = questions.secret("Token of Fly", "VM_SESSIONS_TOKEN")?;
    candidate.options.vm_sessions_token = token.map(|token| token.expose().to_owned());
    ask_callback_address(candidate, questions)
}

/// Asks for the address that runs on other machines report to, unless it is set.
fn ask_callback_address(candidate: &mut Candidate, questions: &Questions) -> anyhow::Result<()> {
    if candidate.options.runner_callback_base_url.is_none() {
        let address = questions.text(
            "Public https address of this service, which runs report to",
            "--runner-callback-base-url",
            None,
        )?;
        candidate.options.runner_callback_base_url = Some(address);
    }
    Ok(())
}

/// Connects Linear with an API key.
pub(super) async fn connect_linear(
    candidate: &mut Candidate,
    questions: &Questions,
) -> anyhow::Result<()> {
    let step = Step {
        vendor: "Linear",
        connection: Connection::Linear,
        help: "Create an API key in Linear: Settings, Security & access, Personal API keys.",
    };
    step.connect(candidate, questions, async |candidate, questions| {
        let key = questions.secret("Linear API key", "LINEAR_API_KEY")?;
        candidate.options.linear_api_key = key.map(|key| key.expose().to_owned());
        Ok(())
    })
    .await?;
    let Some(linear) = candidate.config()?.credentials.linear else {
        return Ok(());
    };
    match &linear.credentials {
        LinearCredentials::ApiKey(key) => candidate.store_secret("LINEAR_API_KEY", key)?,
        LinearCredentials::OAuthClient { id, secret } => {
            candidate.store("LINEAR_CLIENT_ID", id)?;
            candidate.store_secret("LINEAR_CLIENT_SECRET", secret)?;
        }
    }
    candidate.store("LINEAR_API_URL", &linear.api_url)?;
    candidate.store("LINEAR_UPLOADS_URL", &linear.uploads_url)
}

/// Connects Jira with the API token of a person.
pub(super) async fn connect_jira(
    candidate: &mut Candidate,
    questions: &Questions,
) -> anyhow::Result<()> {
    let step = Step {
        vendor: "Jira",
        connection: Connection::Jira,
        help: "Create an API token for your account: https://id.atlassian.com/manage-profile/security/api-tokens",
    };
    step.connect(candidate, questions, async |candidate, questions| {
        let options = &mut candidate.options;
        let site = options.jira_site_url.clone();
        let site = questions.text(
            "Address of the Jira site, such as https://example.atlassian.net",
            "--jira-site-url",
            site.as_deref(),
        )?;
        let email = options.jira_email.clone();
        let email = questions.text(
            "Email address of your account",
            "--jira-email",
            email.as_deref(),
        )?;
        let token = questions.secret("Jira API token", "JIRA_API_TOKEN")?;
        (options.jira_site_url, options.jira_email) = (Some(site), Some(email));
        options.jira_api_token = token.map(|token| token.expose().to_owned());
        Ok(())
    })
    .await?;
    let config = candidate.config()?;
    let Some(jira) = &config.credentials.jira else {
        return Ok(());
    };
    if let Some(site) = &jira.site_url {
        candidate.store("JIRA_SITE_URL", site)?;
    }
    match &jira.credentials {
        JiraCredentials::Basic { email, token } => {
            candidate.store("JIRA_EMAIL", email)?;
            candidate.store_secret("JIRA_API_TOKEN", token)?;
        }
        JiraCredentials::Bearer(token) => candidate.store_secret("JIRA_API_TOKEN", token)?,
    }
    match candidate.options.jira_cloud_id.clone() {
        Some(cloud) => candidate.store("JIRA_CLOUD_ID", &cloud),
        None if Some(&jira.api_url) != jira.site_url.as_ref() => {
            candidate.store("JIRA_API_URL", &jira.api_url)
        }
        None => Ok(()),
    }
}

/// Takes the model key that runs in machines and containers use. Workflows use a secret of the repository.
pub(super) fn connect_model(
    candidate: &mut Candidate,
    questions: &Questions,
    runner: Runner,
) -> anyhow::Result<()> {
    if runner == Runner::Ci {
        return Ok(());
    }
    if candidate.config()?.credentials.model_keys.is_empty() {
        println!("\nCreate a model key: https://console.anthropic.com/settings/keys");
        let key = loop {
            let question = "Anthropic API key, or OAuth token of Claude Code";
            match questions.secret(question, "ANTHROPIC_API_KEY")? {
                Some(key) => break key,
                None => println!("A model key is needed: runs call the model with it."),
            }
        };
        let text = Some(key.expose().to_owned());
        match key.expose().starts_with(CLAUDE_OAUTH_PREFIX) {
            true => candidate.options.claude_code_oauth_token = text,
            false => candidate.options.anthropic_api_key = text,
        }
    }
    for (name, key) in &candidate.config()?.credentials.model_keys {
        candidate.store_secret(name, key)?;
    }
    Ok(())
}

/// Builds the image of local containers, unless the engine has it in this version.
pub(super) async fn ensure_image(candidate: &Candidate, base: Option<&str>) -> anyhow::Result<()> {
    let app = candidate.app().await?;
    let tag = app.core.config.containers.image.clone();
    if !local_image::must_be_built(&app).await? {
        println!("Image of the containers: {tag}");
        return Ok(());
    }
    println!("\nBuilding the image {tag}. It takes some minutes.");
    let image = RunnerImage {
        docker_host: candidate.options.docker_host.clone(),
        tag,
        base: base.unwrap_or(runner_image::default_base()).to_owned(),
        versions: AgentVersions::default(),
    };
    let built = image.build(&app.secrets.redactor, |line| println!("  {line}"));
    built.await?;
    println!("Built the image.");
    Ok(())
}

/// Connection that needs a credential.
pub(super) struct Step {
    pub(super) vendor: &'static str,
    pub(super) connection: Connection,
    /// Where a person gets the credential.
    pub(super) help: &'static str,
}

impl Step {
    /// Checks the credential; asks for another until the vendor accepts it.
    pub(super) async fn connect(
        &self,
        candidate: &mut Candidate,
        questions: &Questions,
        ask: impl AsyncFn(&mut Candidate, &Questions) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        println!();
        loop {
            let problem = match candidate.probe(self.connection).await {
                Ok(Some(result)) if result.status == ProbeStatus::Ok => {
                    println!("{}: {}", self.vendor, single_line(&result.detail));
                    return Ok(());
                }
                Ok(Some(result)) => Some(result.detail),
                Ok(None) => None,
                Err(error) => Some(format!("{error:#}")),
            };
            if let Some(problem) = &problem {
                println!("{}: {}", self.vendor, single_line(problem));
            }
            if !questions.can_ask() {
                let what = problem.as_deref().unwrap_or("no credential is set");
                bail!(
                    "{}: {}. {}",
                    self.vendor,
                    single_line(what).trim_end_matches('.'),
                    self.help
                );
            }
            println!("{}", self.help);
            ask(candidate, questions).await?;
        }
    }
}
