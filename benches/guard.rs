//! How fast does the sensitive-file guard read source, and how does it compare?
//!
//! One thread judges the sources of all crates that this machine has, as if each file were new.
//! Beside it, in the same run: a change that brings nothing new, the same with the files read from
//! disk, and ripsecrets over the same folder, where it is installed
//! (`cargo install ripsecrets --root target/bench-tools`). Ratios within one run are what counts;
//! absolute numbers belong to the machine.
//!
//! `cargo bench --bench guard -- --dir /some/source --rounds 5`

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use agent_implement::domain::sensitive::{AllowList, Verdict, judge};
use anyhow::{Context, Result, ensure};
use clap::Parser;

/// What the design asks of one core, in megabytes a second.
const WANTED: f64 = 50.0;

#[derive(Parser)]
struct Line {
    /// The files to read; without it, the sources of crates below Cargo's home.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// How often each row is measured; the fastest counts.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// The program of `cargo install ripsecrets --root target/bench-tools`.
    #[arg(long, default_value = "target/bench-tools/bin/ripsecrets")]
    ripsecrets: PathBuf,
    /// What cargo says to every benchmark.
    #[arg(long, hide = true)]
    bench: bool,
}

/// One row of the table.
struct Row {
    name: &'static str,
    bytes: usize,
    took: Duration,
}

impl Row {
    /// Megabytes a second.
    fn rate(&self) -> f64 {
        self.bytes as f64 / 1e6 / self.took.as_secs_f64()
    }
}

struct File {
    path: String,
    content: Vec<u8>,
}

fn main() -> Result<()> {
    let line = Line::parse();
    let dir = match line.dir {
        Some(dir) => dir,
        None => crates()?,
    };
    let files = read(&dir)?;
    let bytes = files.iter().map(|file| file.content.len()).sum();
    ensure!(bytes > 0, "no files in {}", dir.display());
    println!(
        "\n{} files, {:.0} MB, of {}\n",
        files.len(),
        bytes as f64 / 1e6,
        dir.display()
    );

    let fastest = |name, work: &mut dyn FnMut()| {
        let took = (0..line.rounds.max(1)).map(|_| timed(work)).min();
        Row {
            name,
            bytes,
            took: took.unwrap_or_default(),
        }
    };
    let none = AllowList::default();
    let mut blocked = 0;
    let judged = fastest("guard, everything new", &mut || {
        let verdicts = files
            .iter()
            .map(|file| judge(&file.path, b"", &file.content, &none));
        blocked = verdicts
            .filter(|verdict| matches!(verdict, Verdict::Blocks(_)))
            .count();
    });
    let unchanged = fastest("guard, nothing new", &mut || {
        for file in &files {
            judge(&file.path, &file.content, &file.content, &none);
        }
    });
    let from_disk = fastest("guard, files read from disk", &mut || {
        for file in &files {
            let content = std::fs::read(&file.path).unwrap_or_default();
            judge(&file.path, b"", &content, &none);
        }
    });
    let mut rows = vec![judged, unchanged, from_disk];
    match peer(&line.ripsecrets, &dir) {
        Ok(took) => rows.push(Row {
            name: "ripsecrets, from disk",
            bytes,
            took,
        }),
        Err(error) => println!("ripsecrets was not measured: {error:#}\n"),
    }
    print(&rows, blocked, files.len());
    Ok(())
}

fn print(rows: &[Row], blocked: usize, files: usize) {
    println!("{:<32}{:>10}{:>12}", "", "MB/s", "seconds");
    for row in rows {
        println!(
            "{:<32}{:>10.1}{:>12.2}",
            row.name,
            row.rate(),
            row.took.as_secs_f64()
        );
    }
    let judged = &rows[0];
    println!("\nblocked files                {blocked:>8} of {files}");
    println!(
        "guard / what is wanted       {:>8.2}",
        judged.rate() / WANTED
    );
    if let [_, _, ours, theirs] = rows {
        let ratio = ours.rate() / theirs.rate();
        println!("guard / ripsecrets           {ratio:>8.2}");
    }
}

fn timed(work: &mut dyn FnMut()) -> Duration {
    let began = Instant::now();
    work();
    began.elapsed()
}

/// Runs another scanner over the same folder. It may use all cores, so what counts is the time that
/// the processor had for it.
fn peer(program: &Path, dir: &Path) -> Result<Duration> {
    ensure!(program.is_file(), "{} is not there", program.display());
    let before = time_of_children()?;
    // It ends with a code of its own when it finds something.
    Command::new(program)
        .arg(dir)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()?;
    Ok(time_of_children()?.saturating_sub(before))
}

/// Processor time of all children that have ended: the sixteenth and seventeenth field, in hundredths
/// of a second. (man proc_pid_stat)
fn time_of_children() -> Result<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let (_, fields) = stat.rsplit_once(") ").context("an odd /proc/self/stat")?;
    let ticks = fields.split(' ').skip(13).take(2).map(str::parse::<u64>);
    let ticks = ticks.sum::<Result<u64, _>>()?;
    Ok(Duration::from_millis(ticks * 10))
}

fn crates() -> Result<PathBuf> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    Ok(home.context("no home of Cargo")?.join("registry/src"))
}

fn read(dir: &Path) -> Result<Vec<File>> {
    let (mut files, mut folders) = (Vec::new(), vec![dir.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() {
                let content = std::fs::read(entry.path())?;
                let path = entry.path().to_string_lossy().into_owned();
                files.push(File { path, content });
            }
        }
    }
    Ok(files)
}
