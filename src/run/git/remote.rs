//! The commands that talk to the host: each through a relay of its own, which holds the token.

use std::time::Duration;

use data_encoding::BASE64;
use hyper::header::HeaderValue;

use super::request_policy::GitRequestPolicy;
use super::{Git, GitError};
use crate::random_hex;
use domain::secret::Secret;
use vendors::http::Relay;

/// Seconds before a command that the network broke is tried again; a minute in all.
const PAUSES: [u64; 6] = [1, 2, 4, 8, 15, 30];

/// How much history comes along? Enough for the agent to see how this project writes.
const HISTORY: &str = "--depth=50";

/// What git says when the network or the host stumbled rather than refused.
const PASSING: [&str; 6] = [
    "connection reset",
    "early eof",
    "rpc failed",
    "unexpected disconnect",
    "the remote end hung up",
    "returned error: 5",
];

/// Begins whatever the HTTP library stumbled over, in words that change with its versions.
const NO_ACCESS: &str = "unable to access";

/// Marks a host that answered, and refused.
const REFUSED: &str = "returned error: 4";

/// How a push ended.
#[derive(Debug, PartialEq, Eq)]
pub enum PushOutcome {
    Done,
    /// The host or the lease refused it, in git's words.
    Rejected(String),
}

impl Git {
    /// The commit that a branch of the host stands at.
    pub async fn remote_head(
        &self,
        token: Option<&Secret>,
        branch: &str,
    ) -> Result<Option<String>, GitError> {
        let reference = format!("refs/heads/{branch}");
        let args = ["ls-remote", "--quiet", self.url.as_str(), &reference];
        let answer = self
            .talk("git ls-remote", token, GitRequestPolicy::Read, &args)
            .await?;
        Ok(answer
            .lines()
            .filter_map(|line| line.split_once('\t'))
            .find(|(_, name)| *name == reference)
            .map(|(commit, _)| commit.to_owned()))
    }

    /// Fetches branches, without tags, submodules or all of their past.
    pub async fn fetch(&self, token: Option<&Secret>, branches: &[&str]) -> Result<(), GitError> {
        self.fetch_with(token, branches, HISTORY).await
    }

    /// Fetches more of the past of branches that were fetched before.
    pub async fn deepen(&self, token: Option<&Secret>, branches: &[&str]) -> Result<(), GitError> {
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
        self.talk("git fetch", token, GitRequestPolicy::Read, &args)
            .await
            .map(drop)
    }

    /// Moves a branch of the host from the commit we saw (none: it must not exist) to ours. A push
    /// whose answer was lost is found again.
    pub async fn push(
        &self,
        token: Option<&Secret>,
        branch: &str,
        seen: Option<&str>,
        commit: &str,
    ) -> Result<PushOutcome, GitError> {
        let lease = format!(
            "--force-with-lease=refs/heads/{branch}:{}",
            seen.unwrap_or_default()
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
        let allowed = GitRequestPolicy::Push {
            branch: branch.to_owned(),
            expected_head: seen.map(str::to_owned),
            commit: commit.to_owned(),
        };
        let failure = match self.talk("git push", token, allowed, &args).await {
            Ok(_) => return Ok(PushOutcome::Done),
            Err(failure) => failure,
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
        match failure {
            GitError::Failed { stderr: said, .. } if said.contains("rejected") => {
                Ok(PushOutcome::Rejected(said))
            }
            failure => Err(failure),
        }
    }

    /// Runs a command that reaches the host through a relay, again when the network broke it.
    async fn talk(
        &self,
        action: &'static str,
        token: Option<&Secret>,
        allowed: GitRequestPolicy,
        args: &[&str],
    ) -> Result<String, GitError> {
        let key = random_hex();
        let pair = token.map(|token| {
            let pair = format!("x-access-token:{}", token.expose());
            BASE64.encode(pair.as_bytes())
        });
        let relay = self
            .relay(pair.as_deref(), allowed, &key)
            .await
            .map_err(|cause| GitError::Io { action, cause })?;
        let url = relay.as_ref().map_or(self.url.as_str(), |relay| &relay.url);
        let args = { args.iter() }.map(|arg| if *arg == self.url { url } else { *arg });
        let mut spec = self.spec(args);
        if relay.is_some() {
            spec.env = spec
                .env
                .with("GIT_CONFIG_COUNT", "1")
                .with("GIT_CONFIG_KEY_0", format!("http.{url}.extraHeader"))
                .with("GIT_CONFIG_VALUE_0", format!("Authorization: Bearer {key}"));
        }
        // A host could repeat what it was given.
        let hidden = token.map(Secret::expose).into_iter().chain(pair.as_deref());
        let hidden: Vec<&str> = hidden.collect();
        let mut pauses = PAUSES.iter();
        loop {
            let failure = match self.run_spec(action, &spec).await {
                Ok(answer) => return Ok(String::from_utf8_lossy(&answer.stdout).into_owned()),
                Err(failure) => shown(failure, relay.as_ref(), &hidden),
            };
            match pauses.next().filter(|_| is_passing(&failure)) {
                Some(pause) => tokio::time::sleep(Duration::from_secs(*pause)).await,
                None => return Err(failure),
            }
        }
    }

    /// Opens the relay of one command. None where the repository is a folder.
    async fn relay(
        &self,
        pair: Option<&str>,
        allowed: GitRequestPolicy,
        key: &str,
    ) -> std::io::Result<Option<Relay>> {
        let Some(client) = &self.relay_client else {
            return Ok(None);
        };
        let authorization = pair.map(|pair| HeaderValue::try_from(format!("Basic {pair}")));
        let mut authorization = authorization.transpose().map_err(std::io::Error::other)?;
        if let Some(value) = &mut authorization {
            value.set_sensitive(true);
        }
        let judge =
            move |path: &str, request: &_, head: &[u8]| allowed.evaluate(path, request, head);
        let relay = client.open(&self.url, authorization, key, judge).await?;
        Ok(Some(relay))
    }
}

fn is_passing(failure: &GitError) -> bool {
    let GitError::Failed { stderr: said, .. } = failure else {
        return false;
    };
    let said = said.to_lowercase();
    let refused = said.contains(REFUSED);
    (said.contains(NO_ACCESS) && !refused) || PASSING.iter().any(|words| said.contains(words))
}

/// The failure with the host's address in its text, and without what must not be seen.
fn shown(failure: GitError, relay: Option<&Relay>, hidden: &[&str]) -> GitError {
    match failure {
        GitError::Failed {
            action,
            code,
            stderr: said,
        } => {
            let said = relay.map_or(said.clone(), |relay| relay.replace_with_upstream(&said));
            let clean = |said: String, secret: &&str| said.replace(secret, "[redacted]");
            let said = hidden.iter().fold(said, clean);
            GitError::Failed {
                action,
                code,
                stderr: said,
            }
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stumble_is_told_from_a_refusal() {
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
        for (said, passing) in rows {
            let failure = GitError::Failed {
                action: "git fetch",
                code: 128,
                stderr: said.to_owned(),
            };
            assert_eq!(is_passing(&failure), passing, "{said}");
        }
    }
}
