//! How fast does the sensitive-file guard read source, and how does it compare?
//!
//! One thread judges the sources of all crates that this machine has, as if each file were new.
//! Beside it, in the same run: a change that brings nothing new, the same with the files read from
//! disk, and ripsecrets over the same folder, where it is installed
//! (`cargo install ripsecrets --root target/bench-tools`). Ratios within one run are what counts;
//! absolute numbers belong to the machine.
//!
//! Then files made to hurt: every word that a rule looks for, over and over, half tokens, encodings in
//! encodings, archives. The slowest of them must keep up as well, or the benchmark fails.
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
    hostile(line.rounds.max(1))
}

/// Measures crafted files; the slowest must reach what is wanted.
fn hostile(rounds: usize) -> Result<()> {
    let none = AllowList::default();
    let mut rows: Vec<(f64, String)> = Vec::new();
    for (name, path, content) in crafted()? {
        let mut took = Duration::MAX;
        for _ in 0..rounds {
            let before = processor_time()?;
            judge(path, b"", &content, &none);
            took = took.min(processor_time()?.saturating_sub(before));
        }
        let rate = content.len() as f64 / 1e6 / took.as_secs_f64();
        rows.push((rate, name));
    }
    rows.sort_by(|one, other| one.0.total_cmp(&other.0));
    println!(
        "\n{} crafted files, the slowest of them in MB/s:",
        rows.len()
    );
    for (rate, name) in rows.iter().take(10) {
        println!("{rate:>10.1}  {name}");
    }
    let (rate, name) = rows.first().context("no crafted file")?;
    ensure!(*rate >= WANTED, "MISSED: {rate:.1} MB/s for {name}");
    Ok(())
}

/// Processor time of this thread, which does not count what else the machine does.
fn processor_time() -> Result<Duration> {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let time = stat.split(' ').next().context("an odd schedstat")?;
    Ok(Duration::from_nanos(time.parse()?))
}

/// What each crafted file is, its path and its content.
fn crafted() -> Result<Vec<(String, &'static str, Vec<u8>)>> {
    const SIZE: usize = 512 << 10;
    let fill = |unit: &str| unit.repeat(SIZE / unit.len().max(1) + 1).into_bytes();
    let half = "aB3xK9".repeat(40);
    let units = [
        "-----BEGIN PRIVATE KEY-----\n".to_owned(),
        "-----BEGIN PRIVATE KEY-----\nComment: -----BEGIN PRIVATE KEY-----\n".into(),
        "-----BEGIN PRIVATE KEY-----".into(),
        "password='".into(),
        "password=password=".into(),
        "password \"".into(),
        "token eyJ".into(),
        "token eyJaaaaaaaaaaaaa.eyJ".into(),
        "postgres://a:b@c ".into(),
        "https://a:bB3xK9aaa@c.net ".into(),
        "host=a.b.net;pwd=b;".into(),
        "host=a.b.net;pwd=bB3xK9;password=aB3xK9;".into(),
        "curl -u a:b ".into(),
        "machine a login b password c".into(),
        "Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ== ".into(),
        "authorization: bearer aB3xK9aB3xK9aB3xK9aB3xK9 ".into(),
        "\"d\":\"aB3xK9aB3xK9aB3xK9aB3xK9aB3xK9aB3xK9aB3xK9\",".into(),
        ".glpat-glpat-glpat-".into(),
        "AZDOabcd ".into(),
        format!("stripe_key={} ", &half[..100]),
        format!("stripe_key={} ", &half[..20]),
        "stripe aws azure github_key=aB3xK9aB3xK9aB3xK9aB3xK9 ".into(),
        format!("AIza{} ", &half[..35]),
        format!("sk-ant-api03-{} ", &half[..100]),
        "LS0tLS1CRUdJTiBQUklWQVRFIEtFWS0tLS0tCg== ".into(),
        "ZXlKaGJHY2lPaUpJVXpJMU5pSjkuZXlKaGJHY2lPaUpJVXpJMU5pSjk= ".into(),
        "%70%61%73%73%77%6f%72%64%3d".into(),
        "\\u0070\\u0061\\u0073\\u0073".into(),
        "\u{200b}key\u{200b}=".into(),
        "kind: Secret\ndata:\n  a: ".into(),
    ];
    let name = |unit: &str| {
        unit.chars()
            .take(48)
            .collect::<String>()
            .escape_debug()
            .to_string()
    };
    let mut files: Vec<(String, &str, Vec<u8>)> = Vec::new();
    for unit in units.iter().chain(&words()?) {
        files.push((name(unit), "x/.npmrc", fill(unit)));
        files.push((
            format!("{} and a space", name(unit)),
            "x/a.yml",
            fill(&format!("{unit} ")),
        ));
    }
    let all = words()?.join("=\"");
    files.push(("all words".into(), "a.txt", fill(&all)));
    let once = data_encoding::BASE64.encode(&fill(&all));
    let twice = data_encoding::BASE64.encode(once.as_bytes());
    files.push(("all words in base64".into(), "a.txt", once.into_bytes()));
    files.push((
        "all words in base64 twice".into(),
        "a.txt",
        twice.clone().into_bytes(),
    ));
    files.push((
        "escapes in base64 twice".into(),
        "a.txt",
        twice.replace('a', "%61").into_bytes(),
    ));
    let wide = all
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect::<Vec<u8>>();
    files.push((
        "all words in UTF-16".into(),
        "a.txt",
        wide.repeat(SIZE / wide.len() + 1),
    ));
    Ok(files)
}

/// Every text that stands in the rules: the names, and the letters of the formats.
fn words() -> Result<Vec<String>> {
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/domain/sensitive/rules");
    let mut words = std::collections::BTreeSet::new();
    for file in read(&rules)? {
        let source = String::from_utf8(file.content)?;
        for text in source.split('"').skip(1).step_by(2) {
            let letters = text
                .split('{')
                .map(|part| part.split_once('}').map_or(part, |(_, rest)| rest));
            words.extend(
                letters
                    .filter(|part| part.len() > 1 && part.len() < 60)
                    .map(str::to_owned),
            );
        }
    }
    ensure!(words.len() > 500, "the rules could not be read");
    Ok(words.into_iter().collect())
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
