//! Leaving the first environment behind.
//!
//! What a process was started with stands in `/proc/<pid>/environ` for as long as it lives, and root
//! of a container may read that even of a process that is not dumpable. So before anything else the
//! run puts itself in its own place once more, with an environment that holds no credential, and
//! hands over what it was given in a piece of memory that is emptied when it has been read. It is
//! the same process to everybody outside: same id, same parent, same output.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::fs::{MemfdFlags, memfd_create};

/// Starts this program again in this very process, with `arguments`, with only the variables that
/// `keep` names, and with all of them on its standard input. Returns only when that failed.
pub fn exec_self(
    variables: &HashMap<String, String>,
    keep: impl Fn(&str) -> bool,
    arguments: &[&str],
) -> io::Error {
    let packed = std::env::current_exe().and_then(|program| Ok((program, pack(variables)?)));
    match packed {
        Ok((program, packed)) => Command::new(program)
            .args(arguments)
            .env_clear()
            .envs(variables.iter().filter(|(name, _)| keep(name)))
            .stdin(packed)
            .exec(),
        Err(error) => error,
    }
}

/// What the process handed over to itself. It can be taken once.
pub fn take_variables() -> io::Result<HashMap<String, String>> {
    unpack(File::from(io::stdin().as_fd().try_clone_to_owned()?))
}

fn pack(variables: &HashMap<String, String>) -> io::Result<File> {
    // Never a file with a name: what is written there might outlive us.
    let mut file = File::from(memfd_create("run", MemfdFlags::CLOEXEC)?);
    serde_json::to_writer(&mut file, variables)?;
    file.rewind()?;
    Ok(file)
}

fn unpack(mut file: File) -> io::Result<HashMap<String, String>> {
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    // Children of ours could open it by way of `/proc` for as long as we live.
    file.set_len(0)?;
    Ok(serde_json::from_slice(&text)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_handed_over_can_be_taken_once() {
        // More than a pipe holds: nobody reads while we write.
        let given = HashMap::from([("RUN_CONFIG".to_owned(), "x\n\"ü".repeat(100_000))]);
        let packed = pack(&given).unwrap();
        let again = packed.try_clone().unwrap();
        assert_eq!(unpack(packed).unwrap(), given);
        assert_eq!(again.metadata().unwrap().len(), 0);
    }
}
