//! Variables of the service manager. See sd_notify(3) and sd_watchdog_enabled(3).

use std::time::Duration;

use super::sources::Sources;

/// Service manager that started this process and expects notifications.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Supervisor {
    /// Notification socket: a path, or the name of an abstract socket after an `@`.
    pub socket: String,
    /// Watchdog interval, after which the service manager restarts a silent process; `None` without
    /// a watchdog.
    pub watchdog: Option<Duration>,
}

/// Reads the service manager's variables. Values in an unknown form are ignored: the service must
/// start without a service manager.
pub(super) fn supervisor(sources: &Sources, own_pid: u32) -> Option<Supervisor> {
    let variable = |name| (sources.lookup)(name);
    let socket = variable("NOTIFY_SOCKET").filter(|name| name.starts_with(['/', '@']))?;
    // A child process inherits the variables, but is not watched.
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

    fn parse(variables: &[(&'static str, &'static str)]) -> Option<Supervisor> {
        let variables = variables.to_vec();
        let variable = move |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let sources = Sources::new(Box::new(variable), VariableNames::Shared(Vec::new()));
        supervisor(&sources, 42)
    }

    #[test]
    fn a_watchdog_applies_only_to_its_own_process() {
        let socket = ("NOTIFY_SOCKET", "/run/systemd/notify");
        let watched = |supervisor: Option<Supervisor>| supervisor.map(|found| found.watchdog);
        let minute = ("WATCHDOG_USEC", "60000000");
        assert_eq!(parse(&[minute]), None);
        assert_eq!(parse(&[("NOTIFY_SOCKET", "vsock:2:1")]), None);
        assert_eq!(
            watched(parse(&[("NOTIFY_SOCKET", "@abstract")])),
            Some(None)
        );
        for (variables, expected) in [
            (parse(&[socket, minute]), Some(Duration::from_secs(60))),
            (
                parse(&[socket, minute, ("WATCHDOG_PID", "42")]),
                Some(Duration::from_secs(60)),
            ),
            (parse(&[socket, minute, ("WATCHDOG_PID", "41")]), None),
            (parse(&[socket, ("WATCHDOG_USEC", "0")]), None),
            (parse(&[socket, ("WATCHDOG_USEC", "soon")]), None),
        ] {
            assert_eq!(watched(variables), Some(expected));
        }
    }
}
