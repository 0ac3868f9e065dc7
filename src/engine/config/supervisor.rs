//! What the service manager said when it started us. (systemd: `sd_notify(3)`, `sd_watchdog_enabled(3)`)

use std::time::Duration;

use super::sources::Sources;

/// Who started us and wants to hear how we are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Supervisor {
    /// Where it listens: a path, or behind an `@` the name of an abstract socket.
    pub socket: String,
    /// How long it may go without hearing from us before it starts us anew; None when it does not
    /// mind.
    pub watchdog: Option<Duration>,
}

/// The service manager, if one started us. What it says in a form that we do not know is as if it
/// had not been said: a service must not fail for want of a listener.
pub(super) fn supervisor(sources: &Sources, own_pid: u32) -> Option<Supervisor> {
    let variable = |name| (sources.lookup)(name);
    let socket = variable("NOTIFY_SOCKET").filter(|name| name.starts_with(['/', '@']))?;
    // A process that merely inherited the variables is not the one that is watched.
    let is_ours = variable("WATCHDOG_PID")
        .and_then(|pid| pid.parse::<u32>().ok())
        .is_none_or(|pid| pid == own_pid);
    let watchdog = variable("WATCHDOG_USEC")
        .and_then(|micros| micros.parse::<u64>().ok())
        .filter(|micros| is_ours && *micros > 0)
        .map(Duration::from_micros);
    Some(Supervisor { socket, watchdog })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::sources::VariableNames;

    fn told(variables: &[(&'static str, &'static str)]) -> Option<Supervisor> {
        let variables = variables.to_vec();
        let variable = move |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let sources = Sources::new(Box::new(variable), VariableNames::Shared(Vec::new()));
        supervisor(&sources, 42)
    }

    #[test]
    fn a_watchdog_counts_only_for_the_process_it_was_meant_for() {
        let socket = ("NOTIFY_SOCKET", "/run/systemd/notify");
        let watched = |supervisor: Option<Supervisor>| supervisor.map(|found| found.watchdog);
        let minute = ("WATCHDOG_USEC", "60000000");
        assert_eq!(told(&[minute]), None);
        assert_eq!(told(&[("NOTIFY_SOCKET", "vsock:2:1")]), None);
        assert_eq!(watched(told(&[("NOTIFY_SOCKET", "@abstract")])), Some(None));
        for (variables, expected) in [
            (told(&[socket, minute]), Some(Duration::from_secs(60))),
            (
                told(&[socket, minute, ("WATCHDOG_PID", "42")]),
                Some(Duration::from_secs(60)),
            ),
            (told(&[socket, minute, ("WATCHDOG_PID", "41")]), None),
            (told(&[socket, ("WATCHDOG_USEC", "0")]), None),
            (told(&[socket, ("WATCHDOG_USEC", "soon")]), None),
        ] {
            assert_eq!(watched(variables), Some(expected));
        }
    }
}
