//! Memory that is given back: how the system's allocator has to be told.
//!
//! By itself glibc keeps up to eight heaps for each processor, and each large block that is freed raises the size
//! from which blocks go back to the system. What a poll needs for a moment then stays with the service
//! for good: three times as much as is in use. glibc is told otherwise by variables that it reads before
//! `main`, so the program starts itself over once. Nothing else can tell it without unsafe code.

use std::env;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Four heaps for all threads, and blocks from 32 KiB on from the system itself where no hole fits: what is large
/// and short-lived leaves holes that little fits into. Each further heap has holes of its own (`tests/README.md`, Load); with
/// fewer, threads wait for each other's heap from some twenty thousand requests a second on (`benches/README.md`).
pub const SETTINGS: [(&str, &str); 2] = [
    ("MALLOC_ARENA_MAX", "4"),
    ("MALLOC_MMAP_THRESHOLD_", "32768"),
];

/// Starts this program over with what is missing of the settings. An operator's own are kept. Returns
/// when there is nothing to set, or when the system does not let us: then more memory is all it costs.
pub fn settle() {
    let missing: Vec<_> = SETTINGS
        .into_iter()
        .filter(|(name, _)| env::var_os(name).is_none())
        .collect();
    if missing.is_empty() {
        return;
    }
    let mut arguments = env::args_os();
    let (Ok(program), Some(name)) = (env::current_exe(), arguments.next()) else {
        return;
    };
    let _ = Command::new(program)
        .arg0(name)
        .args(arguments)
        .envs(missing)
        .exec();
}
