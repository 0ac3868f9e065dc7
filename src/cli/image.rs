//! `agent-implement image build`: builds the image of runs in local containers from this program.

use std::path::PathBuf;
use std::process::ExitCode;

use engine::runner_image::{self, AgentVersions, RunnerImage, VERSION};
use vendors::http::Redactor;

/// Arguments of `image`.
#[derive(Debug, clap::Args)]
pub(super) struct ImageArgs {
    #[command(subcommand)]
    command: ImageCommand,
}

#[derive(Debug, clap::Subcommand)]
enum ImageCommand {
    /// Build the image from this program, git and the agents, in the container engine that the service uses.
    Build(BuildArgs),
}

/// Arguments of `image build`.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
struct BuildArgs {
    /// Image to build on: Debian or Ubuntu with Node.js and npm.
    #[arg(long, value_name = "IMAGE", default_value = runner_image::default_base())]
    from: String,
    /// Name and tag of the image, as LOCAL_RUNNER_IMAGE of the service names it.
    #[arg(
        long,
        value_name = "IMAGE",
        env = "LOCAL_RUNNER_IMAGE",
        default_value = "agent-implement-runner:local"
    )]
    tag: String,
    /// Version of Claude Code.
    #[arg(long, value_name = "VERSION", default_value_t = AgentVersions::default().claude)]
    claude_code_version: String,
    /// Version of OpenAI Codex.
    #[arg(long, value_name = "VERSION", default_value_t = AgentVersions::default().codex)]
    codex_version: String,
    /// Version of Gemini CLI.
    #[arg(long, value_name = "VERSION", default_value_t = AgentVersions::default().gemini)]
    gemini_cli_version: String,
    /// Address of the container engine: `unix:///path` or `tcp://host:port`. If unset,
    /// `unix:///var/run/docker.sock`.
    #[arg(long, env = "DOCKER_HOST")]
    docker_host: Option<String>,
    /// File with the service's variables, in the format of systemd's EnvironmentFile=. LOCAL_RUNNER_IMAGE and
    /// DOCKER_HOST are read from it.
    #[arg(long, value_name = "FILE")]
    env_file: Option<PathBuf>,
    /// Print what would be built, and build nothing.
    #[arg(long)]
    dry_run: bool,
}

const HELP: &str = "\
Sends the running program and a Dockerfile to the engine, no sources. The build downloads the base image, Debian \
packages and the agents from npm.

Exit codes: 0 the image is built; 1 the engine could not be reached, or a step failed; 2 the command line is wrong.";

impl ImageArgs {
    /// Environment file named by the user, if any.
    pub(super) fn env_file(&self) -> &Option<PathBuf> {
        let ImageCommand::Build(build) = &self.command;
        &build.env_file
    }
}

/// Executes the subcommand.
pub(super) async fn image(arguments: ImageArgs) -> anyhow::Result<ExitCode> {
    let ImageCommand::Build(build) = arguments.command;
    let image = RunnerImage {
        docker_host: build.docker_host,
        tag: build.tag,
        base: build.from,
        versions: AgentVersions {
            claude: build.claude_code_version,
            codex: build.codex_version,
            gemini: build.gemini_cli_version,
        },
    };
    if build.dry_run {
        println!("# docker build -t {} with this program and:", image.tag);
        for (name, value) in image.arguments() {
            println!("#   --build-arg {name}={value}");
        }
        print!("{}", runner_image::dockerfile());
        return Ok(ExitCode::SUCCESS);
    }
    image
        .build(&Redactor::default(), |line| println!("{line}"))
        .await?;
    let AgentVersions {
        claude,
        codex,
        gemini,
    } = &image.versions;
    println!(
        "Built {}: agent-implement {VERSION}, Claude Code {claude}, Codex {codex}, Gemini CLI {gemini}.",
        image.tag
    );
    Ok(ExitCode::SUCCESS)
}
