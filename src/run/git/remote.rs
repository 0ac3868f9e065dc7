//! Commands that access the remote, each through its own relay, which holds the token.

use std::collections::HashMap;
use std::time::Duration;

use data_encoding::BASE64;
use hyper::header::HeaderValue;

use super::request_policy::GitRequestPolicy;
use super::{Git, GitError};
use crate::random::random_hex;
use domain::git_mirror::FETCH_DEPTH;
use domain::secret::Secret;
use vendors::http::Relay;

/// Seconds before each retry of a command after a network error; one minute in total.
const PAUSES: [u64; 6] = [1, 2, 4, 8, 15, 30];

/// Variable in which git passes the settings of `-c` to its own commands, as quoted words. A secret cannot be an
/// argument, which every process of the machine can read, and `GIT_CONFIG_COUNT` needs git 2.31: Debian 11 has 2.30.
const CONFIG_VARIABLE: &str = "GIT_CONFIG_PARAMETERS";

/// Parts of git's error output after transient network or server errors.
const TRANSIENT_ERRORS: [&str; 6] = [
    "connection reset",
    "early eof",
    "rpc failed",
    "unexpected disconnect",
    "the remote end hung up",
    "returned error: 5",
];

/// Start of the names of branches at the remote.
const HEADS: &str = "refs/heads/";

/// Prefix of all errors of git's HTTP library, whose text differs between versions.
const HTTP_ERROR: &str = "unable to access";

/// Part of git's error output if the server rejected the request (4xx).
const CLIENT_ERROR: &str = "returned error: 4";

/// Outcome of a push.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PushOutcome {
    /// The branch is at the commit.
    Done,
    /// The remote or the lease rejected the push; git's error output.
    Rejected(String),
}

impl Git {
    /// Returns the head of a remote branch; `None` if the branch does not exist.
    pub(crate) async fn remote_head(
        &self,
        token: Option<&Secret>,
        branch: &str,
    ) -> Result<Option<String>, GitError> {
        let mut heads = self.remote_heads(token, &[branch]).await?;
        Ok(heads.remove(branch))
    }

    /// Returns the heads of those remote branches that exist, by name.
    pub(crate) async fn remote_heads(
        &self,
        token: Option<&Secret>,
        branches: &[&str],
    ) -> Result<HashMap<String, String>, GitError> {
        let references = branches.iter().map(|branch| format!("{HEADS}{branch}"));
        let references: Vec<String> = references.collect();
        let mut args = vec!["ls-remote", "--quiet", self.url.as_str()];
        args.extend(references.iter().map(String::as_str));
        let output = self
            .run_remote("git ls-remote", token, GitRequestPolicy::Read, &args)
            .await?;
        // The arguments are patterns, which also match the ends of other names.
        let heads = output
            .lines()
            .filter_map(|line| line.split_once('\t'))
            .filter_map(|(commit, name)| Some((name.strip_prefix(HEADS)?, commit)))
            .filter(|(name, _)| branches.contains(name));
        Ok(heads
            .map(|(name, commit)| (name.to_owned(), commit.to_owned()))
            .collect())
    }

    /// Fetches branches without tags, submodules and older history.
    pub(crate) async fn fetch(
        &self,
        token: Option<&Secret>,
        branches: &[&str],
    ) -> Result<(), GitError> {
        self.fetch_with(token, branches, FETCH_DEPTH).await
    }

    /// Fetches more history of branches.
    pub(crate) async fn deepen(
        &self,
        token: Option<&Secret>,
        branches: &[&str],
    ) -> Result<(), GitError> {
        self.fetch_with(token, branches, "--deepen=1000").await
    }

    async fn fetch_with(
        &self,
        token: Option<&Secret>,
        branches: &[&str],
        depth: &str,
    ) -> Result<(), GitError> {
        let refspecs: Vec<String> = branches
            .iter()
            .map(|branch| format!("+refs/heads/{branch}:refs/remotes/origin/{branch}"))
            .collect();
        let mut args = vec![
            "fetch",
            "--quiet",
            "--no-tags",
            "--no-recurse-submodules",
            "--no-write-fetch-head",
            depth,
            self.url.as_str(),
        ];
        args.extend(refspecs.iter().map(String::as_str));
        self.run_remote("git fetch", token, GitRequestPolicy::Read, &args)
            .await
            .map(drop)
    }

    /// Moves a remote branch from its expected head (`None`: must not exist) to a commit. If the
    /// push fails, the branch is read again, because the response may have been lost.
    pub(crate) async fn push(
        &self,
        token: Option<&Secret>,
        branch: &str,
        expected_head: Option<&str>,
        commit: &str,
    ) -> Result<PushOutcome, GitError> {
        let lease = format!(
            "--force-with-lease=refs/heads/{branch}:{}",
            expected_head.unwrap_or_default()
        );
        let refspec = format!("{commit}:refs/heads/{branch}");
        let args = [
            "push",
            "--quiet",
            "--no-verify",
            "--no-follow-tags",
            "--recurse-submodules=no",
            &lease,
            self.url.as_str(),
            &refspec,
        ];
        let policy = GitRequestPolicy::Push {
            branch: branch.to_owned(),
            expected_head: expected_head.map(str::to_owned),
            commit: commit.to_owned(),
        };
        let error = match self.run_remote("git push", token, policy, &args).await {
            Ok(_) => return Ok(PushOutcome::Done),
            Err(error) => error,
        };
        if self
            .remote_head(token, branch)
            .await
            .ok()
            .flatten()
            .as_deref()
            == Some(commit)
        {
            return Ok(PushOutcome::Done);
        }
        match error {
            GitError::Failed { stderr, .. } if stderr.contains("rejected") => {
                Ok(PushOutcome::Rejected(stderr))
            }
            error => Err(error),
        }
    }

    /// Runs a command through a relay, with retries after network errors.
    async fn run_remote(
        &self,
        action: &'static str,
        token: Option<&Secret>,
        policy: GitRequestPolicy,
        args: &[&str],
    ) -> Result<String, GitError> {
        let key = random_hex();
        let credentials = token.map(|token| {
            let credentials = format!("x-access-token:{}", token.expose());
            BASE64.encode(credentials.as_bytes())
        });
        let relay = self
            .relay(credentials.as_deref(), policy, &key)
            .await
            .map_err(|cause| GitError::Io { action, cause })?;
        let url = relay.as_ref().map_or(self.url.as_str(), |relay| &relay.url);
        let args = { args.iter() }.map(|arg| if *arg == self.url { url } else { *arg });
        let mut spec = self.spec(args);
        if let Some(Relay { origin, .. }) = &relay {
            let setting = format!("'http.{origin}.extraHeader=Authorization: Bearer {key}'");
            spec.env = spec.env.with(CONFIG_VARIABLE, setting);
        }
        // A server could echo the credentials.
        let secrets = token.map(Secret::expose).into_iter();
        let secrets: Vec<&str> = secrets.chain(credentials.as_deref()).collect();
        let mut pauses = PAUSES.iter();
        loop {
            let error = match self.run_spec(action, &spec).await {
                Ok(output) => return Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
                Err(error) => sanitize_error(error, relay.as_ref(), &secrets),
            };
            match pauses.next().filter(|_| is_transient(&error)) {
                Some(pause) => tokio::time::sleep(Duration::from_secs(*pause)).await,
                None => return Err(error),
            }
        }
    }

    /// Opens the relay of one command; `None` if the remote is a local folder.
    async fn relay(
        &self,
        credentials: Option<&str>,
        policy: GitRequestPolicy,
        key: &str,
    ) -> std::io::Result<Option<Relay>> {
        let Some(client) = &self.relay_client else {
            return Ok(None);
        };
        let authorization =
            credentials.map(|credentials| HeaderValue::try_from(format!("Basic {credentials}")));
        let mut authorization = authorization.transpose().map_err(std::io::Error::other)?;
        if let Some(value) = &mut authorization {
            value.set_sensitive(true);
        }
        let decide =
            move |path: &str, request: &_, head: &[u8]| policy.evaluate(path, request, head);
        let relay = client.open(&self.url, authorization, key, decide).await?;
        Ok(Some(relay))
    }
}

fn is_transient(error: &GitError) -> bool {
    let GitError::Failed { stderr, .. } = error else {
        return false;
    };
    let stderr = stderr.to_lowercase();
    let is_rejected = stderr.contains(CLIENT_ERROR);
    (stderr.contains(HTTP_ERROR) && !is_rejected)
        || TRANSIENT_ERRORS.iter().any(|text| stderr.contains(text))
}

/// Replaces the relay's address by the remote's, and secrets by `[redacted]`.
fn sanitize_error(error: GitError, relay: Option<&Relay>, secrets: &[&str]) -> GitError {
    match error {
        GitError::Failed {
            action,
            code,
            stderr,
        } => {
            let stderr = match relay {
                Some(relay) => relay.replace_with_upstream(&stderr),
                None => stderr,
            };
            let redact = |text: String, secret: &&str| text.replace(secret, "[redacted]");
            let stderr = secrets.iter().fold(stderr, redact);
            GitError::Failed {
                action,
                code,
                stderr,
            }
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinguishes_transient_errors_from_rejections() {
        let rows = [
            (
                "fatal: unable to access 'https://h/o/r.git/': Empty reply from server",
                true,
            ),
            (
                "fatal: unable to access 'https://h/o/r.git/': Could not resolve host: h",
                true,
            ),
            ("error: RPC failed; HTTP 502 curl 22", true),
            (
                "fatal: unable to access 'https://h/o/r.git/': The requested URL returned error: 503",
                true,
            ),
            (
                "fatal: unable to access 'https://h/o/r.git/': The requested URL returned error: 403",
                false,
            ),
            (
                "fatal: Authentication failed for 'https://h/o/r.git/'",
                false,
            ),
            ("fatal: couldn't find remote ref main", false),
        ];
        for (stderr, transient) in rows {
            let error = GitError::Failed {
                action: "git fetch",
                code: 128,
                stderr: stderr.to_owned(),
            };
            assert_eq!(is_transient(&error), transient, "{stderr}");
        }
    }
}
