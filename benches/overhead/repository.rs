//! Repositories of a given size.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// Number of files in the first commit, and of commits after it.
const FILES: usize = 4_000;
const COMMITS: usize = 200;

/// Share of the bytes that the first commit adds. The other commits replace files.
const FIRST_SHARE: f64 = 0.8;

/// Adds files to the branch `main` of a bare repository: nothing for 0 MB, else random bytes, which cannot be
/// compressed, in 4,000 files of 80 folders and 200 commits.
pub fn create(dir: &Path, megabytes: usize) -> Result<()> {
    if megabytes == 0 {
        return Ok(());
    }
    let mut child = Command::new("git")
        .args(["fast-import", "--quiet", "--done"])
        .current_dir(dir)
        .stdin(Stdio::piped())
        .spawn()?;
    let mut input = std::io::BufWriter::new(child.stdin.take().context("no standard input")?);
    let mut random = fastrand::Rng::with_seed(1);
    let total = megabytes as f64 * 1e6;
    let first = (total * FIRST_SHARE / FILES as f64) as usize;
    begin_commit(&mut input, 0)?;
    input.write_all(b"from refs/heads/main^0\n")?;
    for number in 0..FILES {
        write_file(&mut input, &mut random, number, first)?;
    }
    let per_commit = (total * (1.0 - FIRST_SHARE) / COMMITS as f64) as usize;
    for at in 1..=COMMITS {
        begin_commit(&mut input, at)?;
        for _ in 0..per_commit.div_ceil(first) {
            let number = random.usize(0..FILES);
            write_file(&mut input, &mut random, number, first)?;
        }
    }
    input.write_all(b"done\n")?;
    drop(input.into_inner()?);
    ensure!(child.wait()?.success(), "git fast-import failed");
    Ok(())
}

fn begin_commit(input: &mut impl Write, at: usize) -> Result<()> {
    let message = format!("Change {at}\n");
    write!(
        input,
        "commit refs/heads/main\ncommitter Robin Example <robin@sandbox.example> {} +0000\ndata {}\n{message}",
        1_700_000_000 + at,
        message.len()
    )?;
    Ok(())
}

/// Writes a file of between half and one and a half times the mean size.
fn write_file(
    input: &mut impl Write,
    random: &mut fastrand::Rng,
    number: usize,
    mean: usize,
) -> Result<()> {
    let size = random.usize(mean / 2..=mean + mean / 2);
    let content: Vec<u8> = std::iter::repeat_with(|| random.u8(..))
        .take(size)
        .collect();
    let folder = number % 80;
    write!(
        input,
        "M 100644 inline src/part{folder}/file{number}.bin\ndata {size}\n"
    )?;
    input.write_all(&content)?;
    input.write_all(b"\n")?;
    Ok(())
}
