//! The requests that one git command may send to the host.
//!
//! Reading commands read. A push moves one branch from the commit that was seen to the one that was
//! guarded: whatever program asks for more, it is not sent on.

use hyper::http::request::Parts;

use vendors::http::RelayDecision;

/// Begins a line that names where the pushing repository's history ends.
const SHALLOW: &[u8] = b"shallow ";

/// What a git command does at the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GitRequestPolicy {
    Read,
    Push {
        branch: String,
        /// None: the branch must not exist.
        expected_head: Option<String>,
        commit: String,
    },
}

impl GitRequestPolicy {
    /// Judges a request, by its path below the repository's address.
    pub fn evaluate(&self, path: &str, request: &Parts, head: &[u8]) -> RelayDecision {
        let service = match self {
            Self::Read => "git-upload-pack",
            Self::Push { .. } => "git-receive-pack",
        };
        let granted = |granted| match granted {
            true => RelayDecision::Allow,
            false => RelayDecision::Deny,
        };
        if path == format!("/info/refs?service={service}") {
            return granted(request.method == "GET");
        }
        if path.strip_prefix('/') != Some(service) || request.method != "POST" {
            return RelayDecision::Deny;
        }
        match self {
            Self::Read => RelayDecision::Allow,
            // What is packed cannot be judged; git does not pack what it pushes.
            Self::Push { .. } if request.headers.contains_key("content-encoding") => {
                RelayDecision::Deny
            }
            Self::Push { .. } => match commands(head) {
                Ok(Some(commands)) => granted(self.moves_only_its_branch(&commands)),
                Ok(None) => RelayDecision::NeedMoreBody,
                Err(Malformed) => RelayDecision::Deny,
            },
        }
    }

    fn moves_only_its_branch(&self, commands: &[&[u8]]) -> bool {
        let Self::Push {
            branch,
            expected_head: seen,
            commit,
        } = self
        else {
            return false;
        };
        let none = "0".repeat(commit.len());
        let seen = seen.as_deref().unwrap_or(&none);
        let expected = format!("{seen} {commit} refs/heads/{branch}");
        match commands {
            // Git asks so whether it may push at all, before it sends something large.
            [] => true,
            [command] => *command == expected.as_bytes(),
            _ => false,
        }
    }
}

/// Bytes that no git sends.
struct Malformed;

/// The commands at the beginning of a push, without capabilities. None while their end is missing.
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
        if !line.starts_with(SHALLOW) {
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

    fn push(seen: Option<&str>) -> GitRequestPolicy {
        GitRequestPolicy::Push {
            branch: "agent/x".to_owned(),
            expected_head: seen.map(str::to_owned),
            commit: NEW.to_owned(),
        }
    }

    fn line(text: &str) -> String {
        format!("{:04x}{text}", text.len() + 4)
    }

    #[test]
    fn each_command_reaches_its_own_service_only() {
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
        for (allowed, method, path, expected) in rows {
            let judged = allowed.evaluate(path, &parts(method, None), b"");
            assert_eq!(judged, expected, "{allowed:?} {method} {path}");
        }
        let packed =
            push(None).evaluate("/git-receive-pack", &parts("POST", Some("gzip")), b"0000");
        assert_eq!(packed, Deny);
    }

    #[test]
    fn a_push_moves_the_one_branch_from_the_one_commit_to_the_other() {
        use RelayDecision::{Allow, Deny, NeedMoreBody};
        let good = line(&format!(
            "{OLD} {NEW} refs/heads/agent/x\0 report-status agent=git\n"
        ));
        let other_ref = line(&format!("{NONE} {NEW} refs/heads/main\0 report-status"));
        let other_commit = line(&format!("{OLD} {OLD} refs/heads/agent/x\0 report-status"));
        let unseen = line(&format!("{NONE} {NEW} refs/heads/agent/x\0 report-status"));
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
            (format!("{unseen}0000"), Deny),
            (format!("{}{good}0000", line("push-cert\0 x")), Deny),
            ("0001".to_owned(), Deny),
            ("PACK".to_owned(), Deny),
        ];
        let judged = |allowed: &GitRequestPolicy, body: &str| {
            allowed.evaluate("/git-receive-pack", &parts("POST", None), body.as_bytes())
        };
        for (body, expected) in rows {
            assert_eq!(judged(&push(Some(OLD)), &body), expected, "{body:?}");
        }
        let body = format!("{unseen}0000PACK");
        assert_eq!(judged(&push(None), &body), Allow);
        assert_eq!(judged(&push(None), &format!("{good}0000")), Deny);
    }
}
