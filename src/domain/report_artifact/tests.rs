//! Tests of report artifacts: what is accepted, and each reason to refuse.

use std::io::Write;

use flate2::Compression;
use flate2::write::DeflateEncoder;
use serde_json::json;

use super::*;
use crate::evidence::EvidenceKind;
use crate::report::{RunOutcome, RunPhase};

/// Entry of a zip archive to be written.
struct Entry<'a> {
    name: &'a str,
    content: &'a [u8],
    mode: u32,
}

fn file<'a>(name: &'a str, content: &'a [u8]) -> Entry<'a> {
    Entry {
        name,
        content,
        mode: 0o100_644,
    }
}

fn deflate(content: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

/// Writes a zip archive as the upload action does: streamed, so that the local headers have no sizes.
fn zip(entries: &[Entry<'_>]) -> Vec<u8> {
    let (mut archive, mut directory) = (Vec::new(), Vec::new());
    let u16_of = |number: usize| u16::try_from(number).unwrap().to_le_bytes();
    let u32_of = |number: usize| u32::try_from(number).unwrap().to_le_bytes();
    for entry in entries {
        let (offset, packed) = (archive.len(), deflate(entry.content));
        archive.extend(b"PK\x03\x04\x14\0\x08\0\x08\0");
        archive.extend([0; 16]);
        archive.extend(u16_of(entry.name.len()));
        archive.extend([0; 2]);
        archive.extend(entry.name.as_bytes());
        archive.extend(&packed);
        archive.extend(b"PK\x07\x08");
        directory.extend(b"PK\x01\x02\x2d\x03\x14\0\x08\0\x08\0");
        directory.extend([0; 8]);
        directory.extend(u32_of(packed.len()));
        directory.extend(u32_of(entry.content.len()));
        directory.extend(u16_of(entry.name.len()));
        directory.extend([0; 8]);
        directory.extend((entry.mode << 16).to_le_bytes());
        directory.extend(u32_of(offset));
        directory.extend(entry.name.as_bytes());
    }
    let start = archive.len();
    archive.extend(&directory);
    archive.extend(b"PK\x05\x06\0\0\0\0");
    archive.extend([u16_of(entries.len()); 2].concat());
    archive.extend(u32_of(directory.len()));
    archive.extend(u32_of(start));
    archive.extend([0; 2]);
    archive
}

fn key() -> Secret {
    Secret::new("the key of the job")
}

fn origin() -> ReportOrigin {
    ReportOrigin {
        dispatch_id: "01JOB".into(),
        run_id: 7,
        run_attempt: 1,
    }
}

fn result() -> ResultReport {
    let body = json!({"phase": "planning", "outcome": "success", "comments": [{"body": "Plän"}]});
    ResultReport::parse(&body).unwrap().0
}

fn step(id: &str, status: &str) -> StepRecord {
    let step = json!({"id": id, "type": "clone", "status": status, "started_at": "t"});
    StepRecord::parse(Some(step)).unwrap()
}

fn signed() -> String {
    sign(
        &key(),
        &origin(),
        &result(),
        &[step("clone", "passed")],
        &[],
    )
    .unwrap()
}

fn open_file(content: &str) -> Result<ArtifactReport, ArtifactError> {
    open(&key(), &origin(), &zip(&[file(FILE, content.as_bytes())]))
}

#[test]
fn opens_what_a_run_signed() {
    let report = open_file(&signed()).unwrap();
    let (parsed, warnings) = ResultReport::parse(&report.result).unwrap();
    assert_eq!(
        (parsed.phase, parsed.outcome),
        (RunPhase::Planning, RunOutcome::Success)
    );
    assert_eq!(parsed.comments[0].body, "Plän");
    assert!(warnings.is_empty());
    assert_eq!(report.steps[0]["id"], "clone");
    assert_eq!(origin().artifact_name(), "agent-implement-01JOB-1");
}

#[test]
fn carries_evidence_that_fits() {
    let file = |bytes: usize| EvidenceFile {
        name: "a.txt".into(),
        kind: EvidenceKind::Text,
        content: vec![b'x'; bytes],
    };
    let opened = |evidence: &[EvidenceFile]| {
        let signed = sign(&key(), &origin(), &result(), &[], evidence).unwrap();
        assert!(signed.len() <= MAX_BYTES);
        open_file(&signed).unwrap()
    };
    let fits = opened(&[file(evidence::MAX_BYTES)]);
    let parsed = evidence::parse_report(&fits.evidence).unwrap();
    assert_eq!(parsed[0].1.len(), evidence::MAX_BYTES);
    let left_out = opened(&[file(evidence::MAX_BYTES), file(evidence::MAX_BYTES)]);
    assert_eq!(left_out.evidence, Value::Null);
    assert_eq!(left_out.result["phase"], "planning");
    assert_eq!(opened(&[]).evidence, Value::Null);
}

#[test]
fn refuses_a_report_of_another_run() {
    let archive = zip(&[file(FILE, signed().as_bytes())]);
    use ArtifactError::*;
    let rows = [
        (
            ReportOrigin {
                dispatch_id: "01OTHER".into(),
                ..origin()
            },
            OtherDispatch("01JOB".into()),
        ),
        (
            ReportOrigin {
                run_id: 8,
                ..origin()
            },
            OtherRun(7),
        ),
        (
            ReportOrigin {
                run_attempt: 2,
                ..origin()
            },
            OtherAttempt(1),
        ),
    ];
    for (expected, error) in rows {
        assert_eq!(open(&key(), &expected, &archive), Err(error));
    }
    let other_key = Secret::new("another key");
    assert_eq!(open(&other_key, &origin(), &archive), Err(WrongSignature));
}

#[test]
fn refuses_a_changed_report() {
    let signed = signed();
    let swapped = signed.replace("planning", "gap-anal");
    for content in [
        swapped.clone(),
        signed.replace("\"signature\":\"", "\"signature\":\"00"),
        json!({"payload": "{}", "signature": "not hexadecimal"}).to_string(),
        json!({"payload": "{}", "signature": ""}).to_string(),
    ] {
        assert_ne!(content, signed);
        assert_eq!(
            open_file(&content),
            Err(ArtifactError::WrongSignature),
            "{content}"
        );
    }
    for content in [
        "",
        "[]",
        "{}",
        "no JSON",
        "{\"payload\":1,\"signature\":\"\"}",
    ] {
        assert_eq!(
            open_file(content),
            Err(ArtifactError::NotAReport),
            "{content}"
        );
    }
}

#[test]
fn refuses_archives_with_anything_but_the_report() {
    let content = signed();
    let report = || file(FILE, content.as_bytes());
    let refused = |archive: &[u8]| match open(&key(), &origin(), archive) {
        Err(ArtifactError::Archive(error)) => error,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(&zip(&[])), ZipError::FileCount(0));
    assert_eq!(refused(&zip(&[report(), report()])), ZipError::FileCount(2));
    for name in [
        "other.json",
        "../agent-implement-report.json",
        "agent-implement-report.json/x",
    ] {
        assert_eq!(refused(&zip(&[file(name, b"x")])), ZipError::OtherName);
    }
    for mode in [0o120_777, 0o040_755, 0o020_644] {
        let entry = Entry {
            mode,
            ..file(FILE, b"/etc/passwd")
        };
        assert_eq!(refused(&zip(&[entry])), ZipError::NotRegular);
    }
    let bomb = vec![b' '; MAX_BYTES + 1];
    let packed = zip(&[file(FILE, &bomb)]);
    assert!(packed.len() < MAX_BYTES / 100);
    assert_eq!(refused(&packed), ZipError::TooLarge);
    assert_eq!(
        open(&key(), &origin(), &vec![0; MAX_BYTES + 1]),
        Err(ArtifactError::TooLarge)
    );
}

/// No damage may cause a panic, or a report other than the signed one.
#[test]
fn a_damaged_archive_is_refused_or_harmless() {
    let archive = zip(&[file(FILE, signed().as_bytes())]);
    let good = open(&key(), &origin(), &archive).unwrap();
    for length in 0..archive.len() {
        assert!(
            open(&key(), &origin(), &archive[..length]).is_err(),
            "{length}"
        );
    }
    for at in 0..archive.len() {
        for bits in [0x01, 0x80, 0xff] {
            let mut changed = archive.clone();
            changed[at] ^= bits;
            if let Ok(report) = open(&key(), &origin(), &changed) {
                assert_eq!(report, good, "byte {at}");
            }
        }
    }
}

#[test]
fn keeps_the_last_record_of_each_step_within_bounds() {
    let changes = [
        step("a", "running"),
        step("b", "running"),
        step("a", "passed"),
    ];
    let kept = final_steps(changes);
    let shown: Vec<_> = kept.iter().map(|step| (&*step.id, &*step.status)).collect();
    assert_eq!(shown, [("a", "passed"), ("b", "running")]);
    let many = final_steps((0..MAX_STEPS + 9).map(|number| step(&number.to_string(), "passed")));
    assert_eq!((many.len(), &*many[0].id), (MAX_STEPS, "9"));
    let large = |id: &str| StepRecord {
        outputs: Some(json!("x".repeat(400_000))),
        ..step(id, "passed")
    };
    let kept = final_steps(["1", "2", "3"].map(large));
    assert_eq!(
        kept.iter().map(|step| &*step.id).collect::<Vec<_>>(),
        ["2", "3"]
    );
}
