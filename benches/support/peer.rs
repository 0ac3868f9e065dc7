//! Programs of others, each in a process of its own that ends with its handle.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// How long may a program take to listen?
const PATIENCE: Duration = Duration::from_secs(20);

pub struct PeerProcess {
    child: Child,
    pub address: SocketAddr,
}

impl PeerProcess {
    /// Starts `command`, which is to listen on `port`.
    pub fn start(command: &mut Command, port: u16) -> Result<Self> {
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("{:?} cannot be started", command.get_program()))?;
        let mut peer = Self {
            child,
            address: (Ipv4Addr::LOCALHOST, port).into(),
        };
        let began = Instant::now();
        while TcpStream::connect(peer.address).is_err() {
            if let Some(status) = peer.child.try_wait()? {
                bail!("{:?} ended with {status}", command.get_program());
            }
            if began.elapsed() > PATIENCE {
                bail!("{:?} does not listen", command.get_program());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(peer)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for PeerProcess {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Ports that nobody listens on.
pub fn free_ports<const N: usize>() -> Result<[u16; N]> {
    let mut listeners = Vec::new();
    let mut ports = [0; N];
    for port in &mut ports {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        *port = listener.local_addr()?.port();
        // Until all are known, so that none is given twice.
        listeners.push(listener);
    }
    Ok(ports)
}

/// The processor time that a process has used. The kernel counts it in hundredths of a second.
pub fn cpu_time(pid: u32) -> Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, fields) = stat.rsplit_once(')').context("no name in stat")?;
    let ticks = fields.split_whitespace().skip(11).take(2);
    let ticks = ticks.map(str::parse::<u64>).sum::<Result<u64, _>>()?;
    Ok(Duration::from_millis(ticks * 10))
}

/// The memory of a process that is in use, and the most that was, in mebibytes.
pub fn memory_mib(pid: u32) -> Result<(f64, f64)> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let number = line.and_then(|rest| rest.split_whitespace().next());
        let kibibytes: f64 = number.context("no such field in status")?.parse()?;
        Ok::<f64, anyhow::Error>(kibibytes / 1024.0)
    };
    Ok((field("VmRSS:")?, field("VmHWM:")?))
}
