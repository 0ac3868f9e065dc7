//! `agent-implement guard scan` on files, as a commit hook, and over a commit range.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_agent-implement");

/// Token in a published format. It is assembled, so that no scanner reports this file.
fn token() -> String {
    ["gh", "p_", "q7Zk9LmTbX2wVr8NpYc5HdJf3sGtKe41uAoW"].concat()
}

/// Runs a scan in a folder and checks that the output never contains the token.
fn scan(dir: &Path, arguments: &[&str]) -> Output {
    let output = Command::new(PROGRAM)
        .args(["guard", "scan"])
        .args(arguments)
        .current_dir(dir)
        .output()
        .unwrap();
    for stream in [&output.stdout, &output.stderr] {
        let text = String::from_utf8_lossy(stream);
        assert!(!text.contains(&token()), "{arguments:?}: {text}");
    }
    output
}

/// Exit code and JSON lines of a scan.
fn lines(dir: &Path, arguments: &[&str]) -> (Option<i32>, Vec<Value>) {
    let output = scan(dir, &[&["--json"], arguments].concat());
    let stdout = String::from_utf8(output.stdout).unwrap();
    let lines = stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    (output.status.code(), lines.collect())
}

fn line(path: &str, verdict: &str, category: Option<&str>, rule: &str, line: Option<u32>) -> Value {
    json!({"path": path, "verdict": verdict, "category": category, "rule": rule, "line": line})
}

const TOKENS: Option<&str> = Some("tokens and auth files");

fn git_token(path: &str, at: u32) -> Value {
    line(path, "blocks", TOKENS, "GitHub token", Some(at))
}

fn write_file(dir: &Path, path: &str, content: impl AsRef<[u8]>) {
    let path = dir.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

fn git(dir: &Path, script: &str) -> Output {
    Command::new("bash")
        .args(["-euc", script])
        .current_dir(dir)
        .env("HOME", dir)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .output()
        .unwrap()
}

/// Repository with one commit that contains an old token. Git runs with the test's own configuration.
fn repository() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    write_file(dir.path(), "old.ts", format!("const t = '{}';\n", token()));
    write_file(dir.path(), "README.md", "# Shop\n");
    let script = "git init -q -b main . && git config user.email a@b && git config user.name n\n\
                  git add -A && git commit -qm first";
    assert!(git(dir.path(), script).status.success());
    dir
}

#[test]
fn scans_files_like_a_push() {
    let dir = tempfile::tempdir().unwrap();
    let token = token();
    write_file(dir.path(), "src/fine.rs", "fn main() {}\n");
    assert_eq!(lines(dir.path(), &[]), (Some(0), vec![]));

    write_file(
        dir.path(),
        "src/a.ts",
        format!("one\ntwo\nconst t = '{token}';\n"),
    );
    write_file(dir.path(), ".env", "A=1\n");
    write_file(dir.path(), ".git/config", &token);
    write_file(dir.path(), &format!("docs/{token}.md"), "fine\n");
    write_file(
        dir.path(),
        "guess.ts",
        "const apiKey = \"q7Zk9LmTbX2wVr8NpYc5HdJf\";\n",
    );
    symlink("/etc/passwd", dir.path().join("outside")).unwrap();
    symlink(&token, dir.path().join("pointer")).unwrap();
    symlink("src", dir.path().join("again")).unwrap();
    let env = line(
        ".env",
        "blocks",
        Some("environment and config files"),
        "file name",
        None,
    );
    let outside = "symbolic link that leaves the repository";
    let findings = vec![
        env.clone(),
        line("docs/[redacted]", "blocks", TOKENS, "GitHub token", None),
        line("guess.ts", "warns", TOKENS, "possible secret", Some(1)),
        line("outside", "blocks", None, outside, None),
        line("pointer", "blocks", TOKENS, "GitHub token", None),
        git_token("src/a.ts", 3),
    ];
    assert_eq!(lines(dir.path(), &[]), (Some(1), findings));
    assert_eq!(
        lines(dir.path(), &["guess.ts"]).0,
        Some(0),
        "a warning passes"
    );
    let src = dir.path().join("src");
    assert_eq!(lines(dir.path(), &["./src"]).1, [git_token("src/a.ts", 3)]);
    assert_eq!(lines(&src, &["a.ts"]).1, [git_token("a.ts", 3)]);
    assert_eq!(lines(&src, &["../.env"]).0, Some(1));

    let text = String::from_utf8(scan(dir.path(), &["src", ".env"]).stdout).unwrap();
    let expected = "blocks .env: environment and config files (file name)\n\
                    blocks src/a.ts: tokens and auth files (GitHub token) (line 3)\n";
    assert_eq!(text, expected);
}

#[test]
fn honors_the_allow_list_and_exits_2_if_the_scan_fails() {
    let dir = tempfile::tempdir().unwrap();
    write_file(dir.path(), "samples/a.ts", token());
    let permitted = "guard: {allow: ['samples/**']}\n";
    write_file(dir.path(), "other.yml", permitted);
    assert_eq!(lines(dir.path(), &["samples"]).0, Some(1));
    assert_eq!(
        lines(dir.path(), &["--config", "other.yml", "samples"]).0,
        Some(0)
    );
    write_file(dir.path(), ".agent-implement/config.yml", permitted);
    assert_eq!(lines(dir.path(), &["samples"]), (Some(0), vec![]));

    write_file(dir.path(), "bad.yml", "guard: {allow: ['a[']}\n");
    for (arguments, expected) in [
        (vec!["--config", "bad.yml"], "Cannot use bad.yml"),
        (vec!["--config", "none.yml"], "Cannot read none.yml"),
        (vec!["nowhere"], "Cannot read nowhere"),
        (vec!["--staged", "samples"], "cannot be used with"),
        (vec!["--diff", "main"], "\"main\" is not a commit range"),
        (vec!["--staged"], "not a git repository"),
    ] {
        let output = scan(dir.path(), &arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains(expected), "{arguments:?}: {stderr}");
    }
}

/// A token on the last line of a file larger than the read buffer is found.
#[test]
fn scans_a_huge_file_to_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let mut content = "0123456789abcde\n".repeat(30 << 16);
    content.push_str(&token());
    write_file(dir.path(), "huge.txt", content);
    let at = (30 << 16) + 1;
    assert_eq!(
        lines(dir.path(), &["huge.txt"]).1,
        [git_token("huge.txt", at)]
    );
}

#[test]
fn compares_a_huge_file_with_its_previous_content() {
    let dir = repository();
    let content = format!("{}\n{}", token(), "0123456789abcde\n".repeat(26 << 16));
    write_file(dir.path(), "huge.txt", &content);
    let commit = "git add huge.txt && git commit -qm second";
    assert!(git(dir.path(), commit).status.success());
    write_file(dir.path(), "huge.txt", format!("first\n{content}last\n"));
    assert!(git(dir.path(), "git add huge.txt").status.success());
    assert_eq!(lines(dir.path(), &["--staged"]), (Some(0), vec![]));
    let other = token().replace("q7", "r8");
    write_file(dir.path(), "huge.txt", format!("{content}{other}\n"));
    assert!(git(dir.path(), "git add huge.txt").status.success());
    let found = git_token("huge.txt", (26 << 16) + 2);
    assert_eq!(lines(dir.path(), &["--staged"]), (Some(1), vec![found]));
}

/// A huge archive is read in parts and cannot be unpacked. The first part looks like a complete archive here.
#[test]
fn warns_of_a_huge_archive() {
    let dir = repository();
    let mut content = b"PK\x03\x04".to_vec();
    content.resize((24 << 20) - 69, 0);
    let at = u32::try_from(content.len()).unwrap().to_le_bytes();
    let name_length = [&[0; 24][..], &[1], &[0; 17]].concat();
    content.extend([b"PK\x01\x02", &name_length[..], b"a"].concat());
    content.extend(
        [
            b"PK\x05\x06",
            &[0; 4][..],
            &[1, 0, 1, 0],
            &[47, 0, 0, 0],
            &at,
            &[0; 2],
        ]
        .concat(),
    );
    content.resize(25 << 20, 0);
    write_file(dir.path(), "huge.zip", content);
    assert!(git(dir.path(), "git add huge.zip").status.success());
    let rule = "archive that could not be fully checked";
    let warning = line("huge.zip", "warns", TOKENS, rule, None);
    for arguments in ["huge.zip", "--staged"] {
        let expected = (Some(0), vec![warning.clone()]);
        assert_eq!(lines(dir.path(), &[arguments]), expected, "{arguments}");
    }
}

/// Git 2.30 prints options of `rev-parse` that it does not know, and continues.
#[test]
fn scans_with_the_oldest_supported_git() {
    let dir = repository();
    write_file(dir.path(), "src/a.ts", token());
    let old_git = "#!/bin/bash\nfor word; do\n  if [[ $word == --path-format=* ]]; then echo \"$word\"; \
                   else words+=(\"$word\"); fi\ndone\nPATH=${PATH#*:} exec git \"${words[@]}\"\n";
    write_file(dir.path(), "bin/git", old_git);
    assert!(
        git(dir.path(), "chmod +x bin/git; git add src")
            .status
            .success()
    );
    let path = std::env::var("PATH").unwrap();
    for folder in [".", "src"] {
        let output = Command::new(PROGRAM)
            .args(["guard", "scan", "--staged"])
            .current_dir(dir.path().join(folder))
            .env("PATH", format!("{}/bin:{path}", dir.path().display()))
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1), "{folder}: {output:?}");
    }
}

#[test]
fn reports_only_new_lines_in_git() {
    let dir = repository();
    let new = format!(
        "const old = '{0}';\n\nconst other = '{1}';\n",
        token(),
        token().replace("q7", "r8")
    );
    write_file(dir.path(), "old.ts", &new);
    write_file(dir.path(), "unstaged.ts", token());
    assert!(
        git(dir.path(), "git add old.ts && git mv README.md secret.pem")
            .status
            .success()
    );
    let staged = [git_token("old.ts", 3)];
    assert_eq!(lines(dir.path(), &["--staged"]), (Some(1), staged.to_vec()));

    // Commits are compared with the merge base of the two branches.
    let commits = "git commit -qm second && git checkout -qb other HEAD~1 && echo 1 >more && git add more && \
                   git commit -qm third";
    assert!(git(dir.path(), commits).status.success());
    assert_eq!(lines(dir.path(), &["--diff", "other..main"]).1, staged);
    assert_eq!(
        lines(dir.path(), &["--diff", "main..other"]),
        (Some(0), vec![])
    );
    assert_eq!(
        lines(dir.path(), &["--diff", "main~1..HEAD"]),
        (Some(0), vec![])
    );
    assert_eq!(lines(dir.path(), &["--diff", "nowhere..HEAD"]).0, Some(2));
}

/// Runs as a pre-commit hook, including the first commit and a commit of a single path.
#[test]
fn hook_accepts_only_clean_commits() {
    let dir = tempfile::tempdir().unwrap();
    let hook = format!("#!/bin/sh\nexec {PROGRAM} guard scan --staged\n");
    let init = "git init -q -b main . && git config user.email a@b && git config user.name n";
    assert!(git(dir.path(), init).status.success());
    write_file(dir.path(), ".git/hooks/pre-commit", hook);
    let hook = dir.path().join(".git/hooks/pre-commit");
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
    write_file(dir.path(), "a.ts", token());
    write_file(dir.path(), "b.ts", "fine\n");
    let refused = git(dir.path(), "git add -A && git commit -qm first");
    let stderr = String::from_utf8_lossy(&refused.stderr);
    let text = format!("{stderr}{}", String::from_utf8_lossy(&refused.stdout));
    assert!(!refused.status.success(), "{text}");
    assert!(
        text.contains("blocks a.ts: tokens and auth files (GitHub token) (line 1)"),
        "{text}"
    );
    let commit = git(
        dir.path(),
        "git rm -q --cached a.ts && git commit -qm first",
    );
    assert!(commit.status.success(), "{commit:?}");
    // For a single path, git gives the hook a separate index without the other staged files.
    let commit_one_path = "git add a.ts && echo more >>b.ts && git commit -qm second b.ts";
    assert!(git(dir.path(), commit_one_path).status.success());
    assert!(hook.exists(), "the repository is unchanged");
}

/// Programs named in the repository's configuration are not started.
#[test]
fn executes_nothing_from_the_repository() {
    let dir = repository();
    let trap = dir.path().join("trap");
    write_file(
        dir.path(),
        "trap.sh",
        "#!/bin/sh\ntouch \"$(dirname \"$0\")/trap\"\ncat\n",
    );
    write_file(dir.path(), ".gitattributes", "* filter=t diff=t\n");
    let plant = "chmod +x trap.sh; t=$PWD/trap.sh; for k in core.fsmonitor core.pager core.sshCommand diff.external \
        diff.t.textconv diff.t.command filter.t.clean filter.t.smudge filter.t.process; do git config $k $t; done\n\
        mkdir -p .git/hooks && for h in pre-commit post-index-change; do cp trap.sh .git/hooks/$h; done\n\
        echo new >new.txt && git -c core.fsmonitor= -c filter.t.process= -c filter.t.clean= add -A; rm -f trap";
    assert!(git(dir.path(), plant).status.success());
    let config = fs::read(dir.path().join(".git/config")).unwrap();
    let index = fs::read(dir.path().join(".git/index")).unwrap();
    assert_eq!(lines(dir.path(), &["--staged"]).0, Some(0));
    assert_eq!(lines(dir.path(), &["--diff", "HEAD..HEAD"]).0, Some(0));
    assert!(!trap.exists(), "something of the repository was executed");
    assert_eq!(fs::read(dir.path().join(".git/config")).unwrap(), config);
    assert_eq!(fs::read(dir.path().join(".git/index")).unwrap(), index);
}
