//! Child processes of other programs, and process statistics.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Maximum time until a program listens.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// Running peer, which is killed on drop.
pub struct PeerProcess {
    child: Child,
    /// Address on which it listens.
    pub address: SocketAddr,
}

impl PeerProcess {
    /// Starts `command` and waits until it listens on `port`.
    pub fn start(command: &mut Command, port: u16) -> Result<Self> {
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {:?}", command.get_program()))?;
        let mut peer = Self {
            child,
            address: (Ipv4Addr::LOCALHOST, port).into(),
        };
        let began = Instant::now();
        while TcpStream::connect(peer.address).is_err() {
            if let Some(status) = peer.child.try_wait()? {
                bail!("{:?} exited with {status}", command.get_program());
            }
            if began.elapsed() > START_TIMEOUT {
                bail!("{:?} does not listen", command.get_program());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(peer)
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for PeerProcess {
    fn drop(&mut self) {
        // The process may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns distinct free ports.
pub fn free_ports<const N: usize>() -> Result<[u16; N]> {
    let mut listeners = Vec::new();
    let mut ports = [0; N];
    for port in &mut ports {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        *port = listener.local_addr()?.port();
        // Keep all listeners open until the end, so that the ports differ.
        listeners.push(listener);
    }
    Ok(ports)
}

/// Returns the CPU time of a process, with a resolution of 10 ms.
pub fn cpu_time(pid: u32) -> Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, fields) = stat
        .rsplit_once(')')
        .context("unexpected format of /proc/PID/stat")?;
    let ticks = fields.split_whitespace().skip(11).take(2);
    let ticks = ticks.map(str::parse::<u64>).sum::<Result<u64, _>>()?;
    Ok(Duration::from_millis(ticks * 10))
}

/// Returns the current and the peak resident memory of a process, in MiB.
pub fn memory_mib(pid: u32) -> Result<(f64, f64)> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let number = line.and_then(|rest| rest.split_whitespace().next());
        let kibibytes: f64 = number
            .context("missing field in /proc/PID/status")?
            .parse()?;
        Ok::<f64, anyhow::Error>(kibibytes / 1024.0)
    };
    Ok((field("VmRSS:")?, field("VmHWM:")?))
}
