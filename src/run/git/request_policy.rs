//! Requests that a git command may send to the remote.
//!
//! Read commands may only read. A push may only move one branch from its expected head to the
//! guarded commit. The relay rejects every other request, whichever program sends it.

use hyper::http::request::Parts;

use vendors::http::RelayDecision;

/// Prefix of lines about the shallow boundary of the pushing repository.
const SHALLOW_PREFIX: &[u8] = b"shallow ";

/// Allowed use of the remote by a git command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum GitRequestPolicy {
    /// Fetching and listing references.
    Read,
    /// Moving one branch.
    Push {
        /// Name of the branch.
        branch: String,
        /// Head that the branch must have; `None`: it must not exist.
        expected_head: Option<String>,
        /// Commit to move the branch to.
        commit: String,
    },
}

impl GitRequestPolicy {
    /// Decides about a request by its path below the repository's URL, its headers and the start of
    /// its body.
    pub(crate) fn evaluate(&self, path: &str, request: &Parts, head: &[u8]) -> RelayDecision {
        let service = match self {
            Self::Read => "git-upload-pack",
            Self::Push { .. } => "git-receive-pack",
        };
        let allow_if = |is_allowed| match is_allowed {
            true => RelayDecision::Allow,
            false => RelayDecision::Deny,
        };
        if path == format!("/info/refs?service={service}") {
            return allow_if(request.method == "GET");
        }
        if path.strip_prefix('/') != Some(service) || request.method != "POST" {
            return RelayDecision::Deny;
        }
        match self {
            Self::Read => RelayDecision::Allow,
            // A compressed body cannot be checked. Git does not compress pushes.
            Self::Push { .. } if request.headers.contains_key("content-encoding") => {
                RelayDecision::Deny
            }
            Self::Push { .. } => match commands(head) {
                Ok(Some(commands)) => allow_if(self.moves_only_its_branch(&commands)),
                Ok(None) => RelayDecision::NeedMoreBody,
                Err(Malformed) => RelayDecision::Deny,
            },
        }
    }

    fn moves_only_its_branch(&self, commands: &[&[u8]]) -> bool {
        let Self::Push {
            branch,
            expected_head,
            commit,
        } = self
        else {
            return false;
        };
        let zero_id = "0".repeat(commit.len());
        let expected_head = expected_head.as_deref().unwrap_or(&zero_id);
        let expected = format!("{expected_head} {commit} refs/heads/{branch}");
        match commands {
            // Before a large push, git sends an empty request to check its access.
            [] => true,
            [command] => *command == expected.as_bytes(),
            _ => false,
        }
    }
}

/// Error of a body that git would not send.
struct Malformed;

/// Parses the commands at the start of a push body, without capabilities. `None` if more bytes are
/// needed.
fn commands(mut head: &[u8]) -> Result<Option<Vec<&[u8]>>, Malformed> {
    let mut commands = Vec::new();
    loop {
        let Some((length, rest)) = head.split_first_chunk::<4>() else {
            return Ok(None);
        };
        let length = std::str::from_utf8(length).map_err(|_| Malformed)?;
        let length = usize::from_str_radix(length, 16).map_err(|_| Malformed)?;
        if length == 0 {
            return Ok(Some(commands));
        }
        let length = length.checked_sub(4).ok_or(Malformed)?;
        let Some((line, after)) = rest.split_at_checked(length) else {
            return Ok(None);
        };
        if !line.starts_with(SHALLOW_PREFIX) {
            let command = line.split(|byte| *byte == 0).next().unwrap_or_default();
            commands.push(command.strip_suffix(b"\n").unwrap_or(command));
        }
        head = after;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "1111111111111111111111111111111111111111";
    const NEW: &str = "2222222222222222222222222222222222222222";
    const NONE: &str = "0000000000000000000000000000000000000000";

    fn parts(method: &str, encoding: Option<&str>) -> Parts {
        let mut request = hyper::Request::builder().method(method);
        if let Some(encoding) = encoding {
            request = request.header("content-encoding", encoding);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn push(expected_head: Option<&str>) -> GitRequestPolicy {
        GitRequestPolicy::Push {
            branch: "agent/x".to_owned(),
            expected_head: expected_head.map(str::to_owned),
            commit: NEW.to_owned(),
        }
    }

    fn line(text: &str) -> String {
        format!("{:04x}{text}", text.len() + 4)
    }

    #[test]
    fn allows_each_command_its_own_service_only() {
        use RelayDecision::{Allow, Deny};
        let rows = [
            (
                GitRequestPolicy::Read,
                "GET",
                "/info/refs?service=git-upload-pack",
                Allow,
            ),
            (GitRequestPolicy::Read, "POST", "/git-upload-pack", Allow),
            (
                GitRequestPolicy::Read,
                "GET",
                "/info/refs?service=git-receive-pack",
                Deny,
            ),
            (GitRequestPolicy::Read, "POST", "/git-receive-pack", Deny),
            (GitRequestPolicy::Read, "GET", "/git-upload-pack", Deny),
            (
                GitRequestPolicy::Read,
                "POST",
                "/../other.git/git-upload-pack",
                Deny,
            ),
            (
                GitRequestPolicy::Read,
                "POST",
                "/info/lfs/objects/batch",
                Deny,
            ),
            (
                push(None),
                "GET",
                "/info/refs?service=git-receive-pack",
                Allow,
            ),
            (
                push(None),
                "GET",
                "/info/refs?service=git-upload-pack",
                Deny,
            ),
            (push(None), "POST", "/git-upload-pack", Deny),
        ];
        for (policy, method, path, expected) in rows {
            let decision = policy.evaluate(path, &parts(method, None), b"");
            assert_eq!(decision, expected, "{policy:?} {method} {path}");
        }
        let compressed =
            push(None).evaluate("/git-receive-pack", &parts("POST", Some("gzip")), b"0000");
        assert_eq!(compressed, Deny);
    }

    #[test]
    fn allows_a_push_of_the_expected_branch_and_commits_only() {
        use RelayDecision::{Allow, Deny, NeedMoreBody};
        let good = line(&format!(
            "{OLD} {NEW} refs/heads/agent/x\0 report-status agent=git\n"
        ));
        let other_ref = line(&format!("{NONE} {NEW} refs/heads/main\0 report-status"));
        let other_commit = line(&format!("{OLD} {OLD} refs/heads/agent/x\0 report-status"));
        let create = line(&format!("{NONE} {NEW} refs/heads/agent/x\0 report-status"));
        let shallow = line(&format!("shallow {OLD}"));
        let rows = [
            (format!("{good}0000PACK"), Allow),
            (format!("{shallow}{shallow}{good}0000PACK"), Allow),
            ("0000".to_owned(), Allow),
            (good.clone(), NeedMoreBody),
            (good[..20].to_owned(), NeedMoreBody),
            (String::new(), NeedMoreBody),
            (format!("{good}{other_ref}0000"), Deny),
            (format!("{other_ref}0000"), Deny),
            (format!("{other_commit}0000"), Deny),
            (format!("{create}0000"), Deny),
            (format!("{}{good}0000", line("push-cert\0 x")), Deny),
            ("0001".to_owned(), Deny),
            ("PACK".to_owned(), Deny),
        ];
        let decide = |policy: &GitRequestPolicy, body: &str| {
            policy.evaluate("/git-receive-pack", &parts("POST", None), body.as_bytes())
        };
        for (body, expected) in rows {
            assert_eq!(decide(&push(Some(OLD)), &body), expected, "{body:?}");
        }
        let body = format!("{create}0000PACK");
        assert_eq!(decide(&push(None), &body), Allow);
        assert_eq!(decide(&push(None), &format!("{good}0000")), Deny);
    }
}
