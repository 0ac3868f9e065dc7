//! Git commands of mirrors. They run with the rights of the service on content of GitHub, so that no configuration, hook
//! or credential of this machine has an effect. The token is in the environment of git only.

use std::path::Path;
use std::pin::pin;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use data_encoding::BASE64;
use tasks::ProcessGroup;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;
use tokio::time::sleep;

use super::files::size;
use crate::config::ProxyConfig;
use domain::git_mirror::FETCH_DEPTH;
use domain::secret::Secret;
use vendors::http::Redactor;

/// Maximum time of one command.
const TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// Search path of git.
const SEARCH_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Interval at which the size of a repository is compared with its limit.
const SIZE_INTERVAL: Duration = Duration::from_millis(500);

/// Maximum size of what is kept of a command's standard error, in bytes.
const MAX_STDERR: usize = 4 << 10;

/// Settings of every command. The memory of git counts as that of the service.
const SETTINGS: [&str; 14] = [
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.bigFileThreshold=32m",
    "pack.threads=1",
    "pack.windowMemory=64m",
    "credential.helper=",
    "http.followRedirects=false",
    "fetch.fsckObjects=true",
    "fetch.fsck.zeroPaddedFilemode=ignore",
    "fetch.fsck.missingSpaceBeforeDate=ignore",
    "fetch.fsck.badTimezone=ignore",
    "fetch.unpackLimit=1",
    "gc.auto=0",
    "maintenance.auto=false",
];

/// Git with the access to one repository.
pub(super) struct MirrorGit<'a> {
    proxy: &'a ProxyConfig,
    url: &'a str,
    /// Setting with the credential.
    authorization: Secret,
    redactor: Redactor,
    /// Size of the repository above which a command is ended.
    max_bytes: u64,
}

impl<'a> MirrorGit<'a> {
    pub(super) fn new(
        proxy: &'a ProxyConfig,
        url: &'a str,
        token: &Secret,
        max_bytes: u64,
    ) -> Self {
        let credentials = format!("x-access-token:{}", token.expose());
        let credentials = BASE64.encode(credentials.as_bytes());
        let header = format!("'http.{url}.extraHeader=Authorization: Basic {credentials}'");
        Self {
            proxy,
            url,
            authorization: Secret::new(header),
            redactor: Redactor::new([token.expose(), &credentials]),
            max_bytes,
        }
    }

    /// Fetches a branch with its latest history into a bare repository, which is created if needed.
    ///
    /// # Errors
    /// If git is missing or fails.
    pub(super) async fn fetch(&self, dir: &Path, branch: &str) -> Result<(), String> {
        self.run(dir, &["init", "--quiet", "--bare", "--template="])
            .await?;
        // Without force: the history that was rewritten would stay in the packs.
        let refspec = format!("refs/heads/{branch}:refs/heads/{branch}");
        let args = [
            "fetch",
            "--quiet",
            "--no-tags",
            "--no-recurse-submodules",
            "--no-write-fetch-head",
            FETCH_DEPTH,
            self.url,
            &refspec,
        ];
        self.run(dir, &args).await
    }

    /// Packs everything that the branches need into one file, and removes everything else.
    ///
    /// # Errors
    /// If git fails.
    pub(super) async fn repack(&self, dir: &Path) -> Result<(), String> {
        self.run(dir, &["repack", "-a", "-d", "--quiet"]).await
    }

    async fn run(&self, dir: &Path, args: &[&str]) -> Result<(), String> {
        let name = args[0];
        let mut command = Command::new("git");
        command
            .arg("--git-dir")
            .arg(dir)
            .args(SETTINGS.iter().flat_map(|setting| ["-c", setting]))
            .args(args)
            .current_dir(dir)
            .env_clear()
            .env("PATH", SEARCH_PATH)
            .env("HOME", "/dev/null")
            .env("LC_ALL", "C")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("GIT_ALLOW_PROTOCOL", "http:https")
            .env("no_proxy", &self.proxy.no_proxy)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        if name == "fetch" {
            // `-c` would show the credential in the list of processes; git appends its `-c` to this variable.
            command.env("GIT_CONFIG_PARAMETERS", self.authorization.expose());
        }
        let proxies = [
            ("https_proxy", &self.proxy.https_proxy),
            ("http_proxy", &self.proxy.http_proxy),
        ];
        for (variable, proxy) in proxies {
            if let Some(proxy) = proxy {
                command.env(variable, proxy.address.expose());
            }
        }
        let failed = |cause: String| format!("git {name} failed: {cause}");
        let (status, stderr) = self.output(command, dir).await.map_err(failed)?;
        if status.success() {
            return self.check_size(dir).map_err(failed);
        }
        let stderr = String::from_utf8_lossy(&stderr);
        let line = stderr.trim().lines().last().unwrap_or_default();
        // A server could echo the credential.
        Err(failed(format!(
            "{status}: {}",
            self.redactor.sanitize(line)
        )))
    }

    /// Runs a command to its end. Ends it when the repository becomes too large, or after [`TIMEOUT`]. Returns the end of
    /// its standard error.
    async fn output(
        &self,
        mut command: Command,
        dir: &Path,
    ) -> Result<(ExitStatus, Vec<u8>), String> {
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        let group = ProcessGroup::of(&child);
        let stderr = child.stderr.take().ok_or("no standard error")?;
        let mut output = pin!(async move { tokio::try_join!(child.wait(), read_end(stderr)) });
        let mut deadline = pin!(sleep(TIMEOUT));
        let cause = loop {
            tokio::select! {
                output = &mut output => return output.map_err(|error| error.to_string()),
                () = &mut deadline => break "it took too long".to_owned(),
                () = sleep(SIZE_INTERVAL) => {}
            }
            if let Err(cause) = self.check_size(dir) {
                break cause;
            }
        };
        // Git has children, which share its standard error: they have all ended when this is closed. Only then can the
        // folder be removed.
        group.kill();
        let _ = output.await;
        Err(cause)
    }

    fn check_size(&self, dir: &Path) -> Result<(), String> {
        match size(dir) {
            Ok(bytes) if bytes > self.max_bytes => {
                Err(format!("it is larger than {} bytes", self.max_bytes))
            }
            _ => Ok(()),
        }
    }
}

/// Reads a stream to its end and returns the end of it. Git warns of every unusual object of a repository, and names its
/// error last.
async fn read_end(mut stream: impl AsyncRead + Unpin) -> std::io::Result<Vec<u8>> {
    let mut end = Vec::with_capacity(2 * MAX_STDERR);
    while stream.read_buf(&mut end).await? > 0 {
        let excess = end.len().saturating_sub(MAX_STDERR);
        end.drain(..excess);
    }
    Ok(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_the_end_of_standard_error_is_kept() {
        assert_eq!(read_end(&b"fatal: no"[..]).await.unwrap(), b"fatal: no");
        let many = "warning: object\n".repeat(100_000) + "fatal: no";
        let end = read_end(many.as_bytes()).await.unwrap();
        assert_eq!((end.len(), end.capacity()), (MAX_STDERR, 2 * MAX_STDERR));
        assert!(many.as_bytes().ends_with(&end));
    }
}
