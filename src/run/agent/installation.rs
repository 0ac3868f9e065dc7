//! Installation of an agent from npm, for a run in an image without it.
//!
//! Happens before any code of the repository runs, in a new folder of the run, with the pinned version and
//! without scripts of dependencies. npm sees no credential and no configuration of the repository.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;

use crate::child::{self, ChildEnv, ChildSpec};
use crate::folders::Folders;
use crate::programs::tree::ProgramTree;
use crate::programs::{Program, ProgramError};
use domain::agent::NamedAgent;
use domain::sanitize;

/// Maximum time of the installation.
const TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// Longer than a tick of the kernel's clock.
const CLOCK_TICK: Duration = Duration::from_millis(20);

/// Maximum length of npm's output in an error, in bytes.
const MAX_OUTPUT: usize = 600;

/// Folder of the installation, and of npm's home and cache.
const FOLDER: &str = "agent-program";
const NPM_HOME: &str = "npm-home";

/// Installation of an agent by the run.
#[derive(Debug, Clone)]
pub struct Installation {
    program: PathBuf,
    tree: ProgramTree,
}

impl Installation {
    /// Returns the path of the agent program.
    pub(super) fn program(&self) -> &Path {
        &self.program
    }

    /// Verifies that no file of the installation was changed, added or removed.
    ///
    /// # Errors
    /// [`ProgramError::Changed`] with the path.
    pub(super) fn verify_unchanged(&self) -> Result<(), ProgramError> {
        self.tree.verify_unchanged()
    }
}

impl Installation {
    /// Installs an agent in a folder of the run, with npm of the image.
    ///
    /// # Errors
    /// A sentence for the operator.
    pub(super) async fn install(
        agent: NamedAgent,
        env: &ChildEnv,
        folders: &Folders,
    ) -> Result<Self, String> {
        install(agent, env, folders).await.map_err(|cause| {
            format!(
                "cannot install {} {} ({}) from npm: {cause}. Use a runner image that contains it, or let the runner \
                 reach the npm registry",
                agent.product, agent.version, agent.package
            )
        })
    }
}

async fn install(
    agent: NamedAgent,
    env: &ChildEnv,
    folders: &Folders,
) -> Result<Installation, String> {
    let text = |error: io::Error| error.to_string();
    let root = folders.make_empty(FOLDER).map_err(text)?;
    let home = folders.make_empty(NPM_HOME).map_err(text)?;
    let deadline = Instant::now() + TIMEOUT;
    let package = format!("{}@{}", agent.package, agent.version);
    let arguments = [
        "install",
        "--ignore-scripts",
        "--no-fund",
        "--no-audit",
        "--no-update-notifier",
        "--loglevel=error",
        "--prefix",
    ];
    let mut args: Vec<OsString> = arguments.map(OsString::from).into();
    args.extend([root.clone().into(), package.into()]);
    run_tool(("npm", args), env, (&root, &home), deadline).await?;
    let modules = root.join("node_modules");
    if let Some(script) = agent.setup_script {
        let script = modules.join(agent.package).join(script);
        run_tool(("node", vec![script.into()]), env, (&root, &home), deadline).await?;
    }
    // Its cache is not needed any more.
    let _ = std::fs::remove_dir_all(&home);
    let program = modules.join(".bin").join(agent.program);
    if !program.exists() {
        return Err(format!("the package has no program {}", agent.program));
    }
    // Change times have the resolution of a clock tick. A later change must have another one.
    tokio::time::sleep(CLOCK_TICK).await;
    let tree = ProgramTree::record(&root).map_err(text)?;
    Ok(Installation { program, tree })
}

/// Runs a tool of the image to its end, with its working directory and its home.
async fn run_tool(
    (tool, arguments): (&str, Vec<OsString>),
    env: &ChildEnv,
    (dir, home): (&Path, &Path),
    deadline: Instant,
) -> Result<(), String> {
    let path = env.get("PATH").unwrap_or_default();
    let program = Program::find(tool.as_ref(), path).map_err(|error| error.to_string())?;
    let (program, mut args) = program.command();
    args.extend(arguments);
    let spec = ChildSpec {
        program,
        args,
        dir: dir.to_owned(),
        env: env
            .clone()
            .with("HOME", home)
            .with("TMPDIR", home)
            .with("npm_config_cache", home.join("cache"))
            .with("npm_config_userconfig", "/dev/null"),
        input: Vec::new(),
    };
    let output = child::capture(&spec, deadline)
        .await
        .map_err(|error| format!("{tool} {error}"))?;
    if output.exit.success() {
        return Ok(());
    }
    let stderr = sanitize::single_line(&output.stderr).into_owned();
    let stderr = sanitize::truncate(stderr, MAX_OUTPUT, sanitize::ELLIPSIS);
    Err(format!("{tool} ended with {}: {stderr}", output.exit))
}
