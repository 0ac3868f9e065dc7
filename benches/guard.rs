//! Throughput of the sensitive-file guard and of redaction.
//!
//! First, the guard checks the sources of all crates on this machine, one after the other, as if each file
//! were new. For comparison: unchanged files, files read from disk, and ripsecrets on the same folder, if it
//! is installed (`cargo install ripsecrets --root target/bench-tools`). Compare ratios within one run;
//! absolute numbers depend on the machine.
//!
//! Then, crafted slow texts for the guard and for redaction: every word and every format of the rules
//! repeated, alone, truncated, as names, before random values, behind escapes, in base64, in UTF-16, and in
//! an archive. All are measured once, the slowest again with more bytes. The benchmark fails if one is below
//! the target.
//!
//! `cargo bench --bench guard -- --dir /some/source --rounds 5`

#![allow(
    missing_docs,
    unreachable_pub,
    reason = "a test or benchmark has no public interface"
)]
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use data_encoding::BASE64;
use domain::sensitive_files::{
    AllowList, GuardVerdict, PrivateKeyTracker, check_file, find_secrets, redact_ranges,
};
use flate2::Compression;
use flate2::write::GzEncoder;

/// Minimum throughput, in MB/s.
const TARGET_MB_PER_S: f64 = 50.0;

#[derive(Parser)]
struct Args {
    /// Folder to scan. Default: the sources of crates in Cargo's home.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Number of measurements per row; the fastest is reported.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Program installed by `cargo install ripsecrets --root target/bench-tools`.
    #[arg(long, default_value = "target/bench-tools/bin/ripsecrets")]
    ripsecrets: PathBuf,
    /// Flag that cargo passes to every benchmark.
    #[arg(long, hide = true)]
    bench: bool,
}

/// Row of the table.
struct Row {
    name: &'static str,
    bytes: usize,
    took: Duration,
}

impl Row {
    /// Returns the throughput in MB/s.
    fn rate(&self) -> f64 {
        self.bytes as f64 / 1e6 / self.took.as_secs_f64()
    }
}

/// File to scan.
struct File {
    path: String,
    content: Vec<u8>,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let dir = match args.dir {
        Some(dir) => dir,
        None => crate_sources()?,
    };
    let files = read_files(&dir)?;
    let bytes = files.iter().map(|file| file.content.len()).sum();
    ensure!(bytes > 0, "no files in {}", dir.display());
    println!(
        "\n{} files, {:.0} MB, of {}\n",
        files.len(),
        bytes as f64 / 1e6,
        dir.display()
    );

    let fastest = |name, work: &mut dyn FnMut()| {
        let took = (0..args.rounds.max(1)).map(|_| timed(work)).min();
        Row {
            name,
            bytes,
            took: took.unwrap_or_default(),
        }
    };
    let allow = AllowList::default();
    let mut blocked = 0;
    let new = fastest("guard, new files", &mut || {
        let verdicts = files
            .iter()
            .map(|file| check_file(&file.path, b"", &file.content, &allow));
        blocked = verdicts
            .filter(|verdict| matches!(verdict, GuardVerdict::Block(_)))
            .count();
    });
    let unchanged = fastest("guard, unchanged files", &mut || {
        for file in &files {
            check_file(&file.path, &file.content, &file.content, &allow);
        }
    });
    let from_disk = fastest("guard, files read from disk", &mut || {
        for file in &files {
            let content = std::fs::read(&file.path).unwrap_or_default();
            check_file(&file.path, b"", &content, &allow);
        }
    });
    let mut rows = vec![new, unchanged, from_disk];
    match measure_peer(&args.ripsecrets, &dir) {
        Ok(took) => rows.push(Row {
            name: "ripsecrets, from disk",
            bytes,
            took,
        }),
        Err(error) => println!("ripsecrets was not measured: {error:#}\n"),
    }
    print_rows(&rows, blocked, files.len());
    measure_crafted_texts(args.rounds.max(1))
}

/// Operation that is measured on a crafted text.
type Operation = fn(&str, &[u8]);

/// Operations, each with the number of copies of the text that it reads.
const OPERATIONS: [(&str, usize, Operation); 4] = [
    ("guard, new file", 1, |path, text| {
        check_file(path, b"", text, &AllowList::default());
    }),
    ("guard, changed file", 2, |path, text| {
        let mut before = text.to_vec();
        before[text.len() / 2] ^= 1;
        check_file(path, &before, text, &AllowList::default());
    }),
    ("redaction, whole", 1, |_, text| {
        let text = String::from_utf8_lossy(text);
        redact_ranges(&text, &find_secrets(&text));
    }),
    ("redaction, by line", 1, |_, text| {
        let (text, mut key) = (String::from_utf8_lossy(text), PrivateKeyTracker::default());
        for line in text.split('\n') {
            if !key.feed_line(line) {
                redact_ranges(line, &find_secrets(line));
            }
        }
    }),
];

/// Measures crafted texts. Fails if the slowest is below the target.
fn measure_crafted_texts(rounds: usize) -> Result<()> {
    const SAMPLE: usize = 16 << 10;
    const SIZE: usize = 4 << 20;
    const SLOWEST_PLAIN: usize = 1_000;
    const SLOWEST_ENCODED: usize = 30;
    let units = units()?;
    let mut slowest: Option<(f64, String)> = None;
    for (name, copies, operation) in OPERATIONS {
        let rate = |unit: &[u8], encoding: &Encoding, size: usize, rounds: usize| {
            let text = (encoding.build)(unit, size);
            let took = (0..rounds).map(|_| {
                let began = Instant::now();
                operation("x/a.yml", &text);
                began.elapsed()
            });
            let took = took.min().unwrap_or_default();
            (text.len() * copies) as f64 / 1e6 / took.as_secs_f64()
        };
        let mut rows: Vec<(f64, &[u8], &Encoding)> = Vec::new();
        let keep_slowest = |rows: &mut Vec<(f64, &[u8], &Encoding)>, count: usize| {
            rows.sort_by(|one, other| one.0.total_cmp(&other.0));
            rows.truncate(count);
        };
        // The slowest plain texts are also measured in all encodings.
        let (plain, encodings) = ENCODINGS.split_at(1);
        for (encodings, count) in [(plain, SLOWEST_PLAIN), (encodings, SLOWEST_ENCODED)] {
            let known = rows.iter().map(|(_, unit, _)| *unit).collect::<Vec<_>>();
            let all = units.iter().map(Vec::as_slice).collect();
            let bases: Vec<&[u8]> = if known.is_empty() { all } else { known };
            for unit in bases {
                rows.extend(
                    encodings
                        .iter()
                        .map(|encoding| (rate(unit, encoding, SAMPLE, 1), unit, encoding)),
                );
            }
            keep_slowest(&mut rows, count);
        }
        for (measured, unit, encoding) in &mut rows {
            *measured = rate(unit, encoding, SIZE, rounds);
        }
        rows.sort_by(|one, other| one.0.total_cmp(&other.0));
        println!("\n{name}, slowest of {} crafted texts, MB/s:", units.len());
        for (rate, unit, encoding) in rows.iter().take(8) {
            let unit: String = String::from_utf8_lossy(unit).chars().take(48).collect();
            println!("{rate:>10.1}  {}: {}", encoding.name, unit.escape_debug());
        }
        let first = rows.first().context("no crafted text")?;
        if slowest.as_ref().is_none_or(|(rate, _)| first.0 < *rate) {
            slowest = Some((first.0, name.to_owned()));
        }
    }
    let (rate, name) = slowest.context("no crafted text")?;
    ensure!(rate >= TARGET_MB_PER_S, "MISSED: {rate:.1} MB/s, {name}");
    Ok(())
}

/// Encoding that builds a text of about `size` bytes from a repeated unit.
struct Encoding {
    name: &'static str,
    build: fn(&[u8], usize) -> Vec<u8>,
}

const ENCODINGS: [Encoding; 8] = [
    Encoding {
        name: "plain",
        build: fill,
    },
    Encoding {
        name: "after one escape",
        build: |unit, size| [b"%41 ", &fill(unit, size)[..]].concat(),
    },
    Encoding {
        name: "with soft hyphens",
        build: |unit, size| {
            let some = unit.repeat((60 / unit.len()).max(1));
            fill(&[&some[..], "\u{ad}".as_bytes()].concat(), size)
        },
    },
    Encoding {
        name: "half in base64",
        build: |unit, size| {
            let packed = BASE64.encode(&fill(unit, size * 3 / 8));
            [&fill(unit, size / 2)[..], b" %41 ", packed.as_bytes()].concat()
        },
    },
    Encoding {
        name: "base64 twice",
        build: |unit, size| {
            let once = BASE64.encode(&fill(unit, size * 9 / 16));
            BASE64.encode(once.as_bytes()).into_bytes()
        },
    },
    Encoding {
        name: "percent-encoded",
        build: |unit, size| {
            let letters = fill(unit, size / 3);
            let escapes = letters.iter().map(|byte| format!("%{byte:02x}"));
            escapes.collect::<String>().into_bytes()
        },
    },
    Encoding {
        name: "UTF-16",
        build: |unit, size| {
            let letters = fill(unit, size / 2);
            letters.into_iter().flat_map(|byte| [byte, 0]).collect()
        },
    },
    Encoding {
        name: "gzip, stored",
        build: |unit, size| {
            let mut archive = GzEncoder::new(Vec::new(), Compression::none());
            let written = archive.write_all(&fill(unit, size));
            written.and_then(|()| archive.finish()).unwrap_or_default()
        },
    },
];

/// Placeholder for a random letter or digit.
const ANY: char = '\u{1}';
/// Placeholder for a random hexadecimal digit.
const HEX: char = '\u{2}';

/// Repeats the unit and replaces each placeholder with a random character.
fn fill(unit: &[u8], size: usize) -> Vec<u8> {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789x7";
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = unit.repeat(size / unit.len().max(1) + 1);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for byte in &mut text {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let random = (state >> 32) as usize;
        match char::from(*byte) {
            ANY => *byte = LETTERS[random % LETTERS.len()],
            HEX => *byte = DIGITS[random % DIGITS.len()],
            _ => {}
        }
    }
    text
}

/// Returns the units that crafted texts repeat.
fn units() -> Result<Vec<Vec<u8>>> {
    let any = ANY.to_string().repeat(200);
    let hex = HEX.to_string().repeat(40);
    let mut units: Vec<String> = [
        "-----BEGIN PRIVATE KEY-----\n",
        "-----BEGIN PRIVATE KEY-----\nComment: -----BEGIN PRIVATE KEY-----\n",
        "-----BEGIN ",
        "PRIVATE KEY",
        "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\n",
        "password='",
        "password=password=",
        "token eyJaaaaaaaaaaaaa.eyJ",
        "-eyJ-AKIA0123456789ABCDEF",
        "postgres://a:b@c ",
        "a://:",
        "https://a:bB3xK9aaa@c.net ",
        "host=a.b.net;pwd=bB3xK9;password=aB3xK9;",
        "curl -u a:b ",
        "machine a login b password c",
        "Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ== ",
        "authorization: bearer aB3xK9aB3xK9aB3xK9aB3xK9 ",
        "\"d\":\"aB3xK9aB3xK9aB3xK9aB3xK9aB3xK9aB3xK9aB3xK9\",",
        ".glpat-glpat-glpat-",
        "stripe aws azure github_key=aB3xK9aB3xK9aB3xK9aB3xK9 ",
        "LS0tLS1CRUdJTiBQUklWQVRFIEtFWS0tLS0tCg== ",
        "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC\n",
        "\u{200b}key\u{200b}=",
        "%",
        "\n",
    ]
    .map(str::to_owned)
    .into();
    let words = rule_words()?;
    for word in &words {
        for form in ["", " ", "\n", "=\"", "_key=", "key=\""] {
            units.push(format!("{word}{form}"));
            units.push(format!("{form}{word}"));
        }
        for run in [&any[..10], &hex[..34], &any[..45], &any[..200]] {
            units.push(format!("{word}{run} "));
        }
        for value in [&any[..14], &any[..20], &hex[..40]] {
            units.push(format!("{word}_key={value} "));
            units.push(format!("{word}_key=\"{value}\"\n"));
        }
    }
    // Pairs of words from different rules.
    let partners = words.iter().rev().step_by(7);
    units.extend(
        words
            .iter()
            .step_by(5)
            .zip(partners)
            .map(|(one, other)| format!("{one}{other}")),
    );
    Ok(units.into_iter().map(String::into_bytes).collect())
}

/// Returns all keywords and literals of formats in the source of the rules.
fn rule_words() -> Result<Vec<String>> {
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/domain/sensitive_files/rules");
    let mut words = std::collections::BTreeSet::new();
    for file in read_files(&rules)? {
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
    ensure!(words.len() > 500, "too few words found in the rules");
    Ok(words.into_iter().collect())
}

/// Prints the table of the first part.
fn print_rows(rows: &[Row], blocked: usize, files: usize) {
    println!("{:<32}{:>10}{:>12}", "", "MB/s", "seconds");
    for row in rows {
        println!(
            "{:<32}{:>10.1}{:>12.2}",
            row.name,
            row.rate(),
            row.took.as_secs_f64()
        );
    }
    let new = &rows[0];
    println!("\nblocked files                {blocked:>8} of {files}");
    println!(
        "guard / target               {:>8.2}",
        new.rate() / TARGET_MB_PER_S
    );
    if let [_, _, ours, theirs] = rows {
        let ratio = ours.rate() / theirs.rate();
        println!("guard / ripsecrets           {ratio:>8.2}");
    }
}

/// Returns the duration of `work`.
fn timed(work: &mut dyn FnMut()) -> Duration {
    let began = Instant::now();
    work();
    began.elapsed()
}

/// Runs another scanner on the same folder. Returns its CPU time, because it may use all cores.
fn measure_peer(program: &Path, dir: &Path) -> Result<Duration> {
    ensure!(program.is_file(), "{} does not exist", program.display());
    let before = cpu_time_of_children()?;
    // The exit code is ignored: it is nonzero if the scanner finds secrets.
    Command::new(program)
        .arg(dir)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()?;
    Ok(cpu_time_of_children()?.saturating_sub(before))
}

/// Returns the CPU time of all exited children: fields 16 and 17 of `/proc/self/stat`, in hundredths of a
/// second. See proc_pid_stat(5).
fn cpu_time_of_children() -> Result<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let (_, fields) = stat
        .rsplit_once(") ")
        .context("unexpected format of /proc/self/stat")?;
    let ticks = fields.split(' ').skip(13).take(2).map(str::parse::<u64>);
    let ticks = ticks.sum::<Result<u64, _>>()?;
    Ok(Duration::from_millis(ticks * 10))
}

/// Returns the folder of crate sources in Cargo's home.
fn crate_sources() -> Result<PathBuf> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    Ok(home
        .context("cannot find Cargo's home: set CARGO_HOME")?
        .join("registry/src"))
}

/// Reads all files below a folder.
fn read_files(dir: &Path) -> Result<Vec<File>> {
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
