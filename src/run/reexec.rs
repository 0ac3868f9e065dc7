//! Re-executes the run without credentials in its environment.
//!
//! The initial environment of a process stays readable in `/proc/<pid>/environ`; root in a
//! container can read it even if the process is not dumpable. So the run first executes itself
//! again with an environment that holds no credential, and passes the variables in a memfd that is
//! truncated after it was read. Process id, parent and output stay the same.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::fs::{MemfdFlags, memfd_create};

/// Executes this program again in the same process, with `arguments`, the variables selected by
/// `keep`, and all variables on standard input. Returns only on failure.
pub(crate) fn exec_self(
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

/// Reads the variables that [`exec_self`] passed. They can be read once.
pub(crate) fn take_variables() -> io::Result<HashMap<String, String>> {
    unpack(File::from(io::stdin().as_fd().try_clone_to_owned()?))
}

fn pack(variables: &HashMap<String, String>) -> io::Result<File> {
    // A memfd has no name in the file system, so nothing is left behind.
    let mut file = File::from(memfd_create("run", MemfdFlags::CLOEXEC)?);
    serde_json::to_writer(&mut file, variables)?;
    file.rewind()?;
    Ok(file)
}

fn unpack(mut file: File) -> io::Result<HashMap<String, String>> {
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    // Children could otherwise open it through `/proc`.
    file.set_len(0)?;
    Ok(serde_json::from_slice(&text)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_variables_that_can_be_read_once() {
        // More than a pipe buffer holds, because nothing reads during the write.
        let variables = HashMap::from([("RUN_CONFIG".to_owned(), "x\n\"ü".repeat(100_000))]);
        let packed = pack(&variables).unwrap();
        let again = packed.try_clone().unwrap();
        assert_eq!(unpack(packed).unwrap(), variables);
        assert_eq!(again.metadata().unwrap().len(), 0);
    }
}
