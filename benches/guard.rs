//! How fast does the sensitive-file guard read source, and how does it compare?
//!
//! The sources of all crates that this machine has are judged one after the other, as if each file
//! were new.
//! Beside it, in the same run: a change that brings nothing new, the same with the files read from
//! disk, and ripsecrets over the same folder, where it is installed
//! (`cargo install ripsecrets --root target/bench-tools`). Ratios within one run are what counts;
//! absolute numbers belong to the machine.
//!
//! Then texts crafted to be slow, for the guard and for redaction: every word and every format of the
//! rules over and over, alone, half, as names and before values that are drawn anew each time, behind
//! escapes, in base64, in UTF-16, in an archive. All are measured once, the slowest again on more
//! bytes; below the target the benchmark fails.
//!
//! `cargo bench --bench guard -- --dir /some/source --rounds 5`

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

/// What the design asks for, in megabytes a second.
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
            .map(|file| check_file(&file.path, b"", &file.content, &none));
        blocked = verdicts
            .filter(|verdict| matches!(verdict, GuardVerdict::Block(_)))
            .count();
    });
    let unchanged = fastest("guard, nothing new", &mut || {
        for file in &files {
            check_file(&file.path, &file.content, &file.content, &none);
        }
    });
    let from_disk = fastest("guard, files read from disk", &mut || {
        for file in &files {
            let content = std::fs::read(&file.path).unwrap_or_default();
            check_file(&file.path, b"", &content, &none);
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

/// What is measured on a crafted text.
type Work = fn(&str, &[u8]);

/// The ways a text is read, each with how many times its bytes are given.
const WORKS: [(&str, usize, Work); 4] = [
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

/// Measures crafted texts; the slowest must reach the target.
fn hostile(rounds: usize) -> Result<()> {
    const SAMPLE: usize = 16 << 10;
    const SIZE: usize = 4 << 20;
    const VEILED: usize = 1_000;
    const SLOWEST: usize = 30;
    let units = units()?;
    let mut slowest: Option<(f64, String)> = None;
    for (name, times, work) in WORKS {
        let rate = |unit: &[u8], veil: &Veil, size: usize, rounds: usize| {
            let text = (veil.of)(unit, size);
            let took = (0..rounds).map(|_| {
                let began = Instant::now();
                work("x/a.yml", &text);
                began.elapsed()
            });
            let took = took.min().unwrap_or_default();
            (text.len() * times) as f64 / 1e6 / took.as_secs_f64()
        };
        let mut rows: Vec<(f64, &[u8], &Veil)> = Vec::new();
        let sort = |rows: &mut Vec<(f64, &[u8], &Veil)>, most: usize| {
            rows.sort_by(|one, other| one.0.total_cmp(&other.0));
            rows.truncate(most);
        };
        // The slowest as they stand are veiled, too.
        let (plain, veils) = VEILS.split_at(1);
        for (veils, most) in [(plain, VEILED), (veils, SLOWEST)] {
            let known = rows.iter().map(|(_, unit, _)| *unit).collect::<Vec<_>>();
            let all = units.iter().map(Vec::as_slice).collect();
            let bases: Vec<&[u8]> = if known.is_empty() { all } else { known };
            for unit in bases {
                rows.extend(
                    veils
                        .iter()
                        .map(|veil| (rate(unit, veil, SAMPLE, 1), unit, veil)),
                );
            }
            sort(&mut rows, most);
        }
        for (measured, unit, veil) in &mut rows {
            *measured = rate(unit, veil, SIZE, rounds);
        }
        rows.sort_by(|one, other| one.0.total_cmp(&other.0));
        println!(
            "\n{name}, the slowest of {} crafted texts in MB/s:",
            units.len()
        );
        for (rate, unit, veil) in rows.iter().take(8) {
            let unit: String = String::from_utf8_lossy(unit).chars().take(48).collect();
            println!("{rate:>10.1}  {}: {}", veil.name, unit.escape_debug());
        }
        let least = rows.first().context("no crafted text")?;
        if slowest.as_ref().is_none_or(|(rate, _)| least.0 < *rate) {
            slowest = Some((least.0, name.to_owned()));
        }
    }
    let (rate, name) = slowest.context("no crafted text")?;
    ensure!(rate >= WANTED, "MISSED: {rate:.1} MB/s, {name}");
    Ok(())
}

/// A way to make a text of a unit, of about so many bytes.
struct Veil {
    name: &'static str,
    of: fn(&[u8], usize) -> Vec<u8>,
}

const VEILS: [Veil; 8] = [
    Veil {
        name: "as it stands",
        of: fill,
    },
    Veil {
        name: "after one escape",
        of: |unit, size| [b"%41 ", &fill(unit, size)[..]].concat(),
    },
    Veil {
        name: "with soft hyphens",
        of: |unit, size| {
            let some = unit.repeat((60 / unit.len()).max(1));
            fill(&[&some[..], "\u{ad}".as_bytes()].concat(), size)
        },
    },
    Veil {
        name: "half in base64",
        of: |unit, size| {
            let packed = BASE64.encode(&fill(unit, size * 3 / 8));
            [&fill(unit, size / 2)[..], b" %41 ", packed.as_bytes()].concat()
        },
    },
    Veil {
        name: "in base64 twice",
        of: |unit, size| {
            let once = BASE64.encode(&fill(unit, size * 9 / 16));
            BASE64.encode(once.as_bytes()).into_bytes()
        },
    },
    Veil {
        name: "in escapes",
        of: |unit, size| {
            let letters = fill(unit, size / 3);
            let escapes = letters.iter().map(|byte| format!("%{byte:02x}"));
            escapes.collect::<String>().into_bytes()
        },
    },
    Veil {
        name: "in UTF-16",
        of: |unit, size| {
            let letters = fill(unit, size / 2);
            letters.into_iter().flat_map(|byte| [byte, 0]).collect()
        },
    },
    Veil {
        name: "in gzip, as long as before",
        of: |unit, size| {
            let mut archive = GzEncoder::new(Vec::new(), Compression::none());
            let written = archive.write_all(&fill(unit, size));
            written.and_then(|()| archive.finish()).unwrap_or_default()
        },
    },
];

/// Stands for a letter or digit, and for a hexadecimal digit, that is drawn anew each time.
const ANY: char = '\u{1}';
const HEX: char = '\u{2}';

/// The unit over and over, with its values drawn.
fn fill(unit: &[u8], size: usize) -> Vec<u8> {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789x7";
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = unit.repeat(size / unit.len().max(1) + 1);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for byte in &mut text {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let drawn = (state >> 32) as usize;
        match char::from(*byte) {
            ANY => *byte = LETTERS[drawn % LETTERS.len()],
            HEX => *byte = DIGITS[drawn % DIGITS.len()],
            _ => {}
        }
    }
    text
}

/// What crafted texts are made of.
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
    let words = words()?;
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
    // Pairs that no other form brings together.
    let apart = words.iter().rev().step_by(7);
    units.extend(
        words
            .iter()
            .step_by(5)
            .zip(apart)
            .map(|(one, other)| format!("{one}{other}")),
    );
    Ok(units.into_iter().map(String::into_bytes).collect())
}

/// Every text that stands in the rules: the names, and the letters of the formats.
fn words() -> Result<Vec<String>> {
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/domain/sensitive_files/rules");
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
