//! `agent-implement guard scan`: at a shell, as a hook, and over a range of commits.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_agent-implement");

/// A token of a published format. It does not stand in this file, so that nobody takes it for one.
fn token() -> String {
    ["gh", "p_", "q7Zk9LmTbX2wVr8NpYc5HdJf3sGtKe41uAoW"].concat()
}

/// A scan in a folder. It never prints the token.
fn scan(dir: &Path, arguments: &[&str]) -> Output {
    let done = Command::new(PROGRAM)
        .args(["guard", "scan"])
        .args(arguments)
        .current_dir(dir)
        .output()
        .unwrap();
    for said in [&done.stdout, &done.stderr] {
        let said = String::from_utf8_lossy(said);
        assert!(!said.contains(&token()), "{arguments:?}: {said}");
    }
    done
}

/// The exit code and the lines of a scan in JSON.
fn lines(dir: &Path, arguments: &[&str]) -> (Option<i32>, Vec<Value>) {
    let done = scan(dir, &[&["--json"], arguments].concat());
    let said = String::from_utf8(done.stdout).unwrap();
    let lines = said.lines().map(|line| serde_json::from_str(line).unwrap());
    (done.status.code(), lines.collect())
}

fn line(path: &str, verdict: &str, category: Option<&str>, rule: &str, line: Option<u32>) -> Value {
    json!({"path": path, "verdict": verdict, "category": category, "rule": rule, "line": line})
}

const TOKENS: Option<&str> = Some("tokens and auth files");

fn git_token(path: &str, at: u32) -> Value {
    line(path, "blocks", TOKENS, "GitHub token", Some(at))
}

fn put(dir: &Path, path: &str, content: impl AsRef<[u8]>) {
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

/// A repository with a commit that holds an old token, made by `git` with this set-up.
fn repository() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    put(dir.path(), "old.ts", format!("const t = '{}';\n", token()));
    put(dir.path(), "README.md", "# Shop\n");
    let script = "git init -q -b main . && git config user.email a@b && git config user.name n\n\
                  git add -A && git commit -qm first";
    assert!(git(dir.path(), script).status.success());
    dir
}

#[test]
fn files_are_judged_as_if_they_were_about_to_be_pushed() {
    let dir = tempfile::tempdir().unwrap();
    let token = token();
    put(dir.path(), "src/fine.rs", "fn main() {}\n");
    assert_eq!(lines(dir.path(), &[]), (Some(0), vec![]));

    put(
        dir.path(),
        "src/a.ts",
        format!("one\ntwo\nconst t = '{token}';\n"),
    );
    put(dir.path(), ".env", "A=1\n");
    put(dir.path(), ".git/config", &token);
    put(dir.path(), &format!("docs/{token}.md"), "fine\n");
    put(
        dir.path(),
        "guess.ts",
        "const apiKey = \"q7Zk9LmTbX2wVr8NpYc5HdJf\";\n",
    );
    symlink("/etc/passwd", dir.path().join("outside")).unwrap();
    symlink(&token, dir.path().join("said")).unwrap();
    symlink("src", dir.path().join("again")).unwrap();
    let env = line(
        ".env",
        "blocks",
        Some("environment and config files"),
        "file name",
        None,
    );
    let outside = "symbolic link that leaves the repository";
    let all = vec![
        env.clone(),
        line("docs/[redacted]", "blocks", TOKENS, "GitHub token", None),
        line("guess.ts", "warns", TOKENS, "possible secret", Some(1)),
        line("outside", "blocks", None, outside, None),
        line("said", "blocks", TOKENS, "GitHub token", None),
        git_token("src/a.ts", 3),
    ];
    assert_eq!(lines(dir.path(), &[]), (Some(1), all));
    assert_eq!(
        lines(dir.path(), &["guess.ts"]).0,
        Some(0),
        "a warning passes"
    );
    let src = dir.path().join("src");
    assert_eq!(lines(dir.path(), &["./src"]).1, [git_token("src/a.ts", 3)]);
    assert_eq!(lines(&src, &["a.ts"]).1, [git_token("a.ts", 3)]);
    assert_eq!(lines(&src, &["../.env"]).0, Some(1));

    let words = String::from_utf8(scan(dir.path(), &["src", ".env"]).stdout).unwrap();
    let expected = "blocks .env: environment and config files (file name)\n\
                    blocks src/a.ts: tokens and auth files (GitHub token) (line 3)\n";
    assert_eq!(words, expected);
}

#[test]
fn what_is_permitted_passes_and_a_scan_that_cannot_be_made_is_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    put(dir.path(), "samples/a.ts", token());
    let permitted = "guard: {allow: ['samples/**']}\n";
    put(dir.path(), "other.yml", permitted);
    assert_eq!(lines(dir.path(), &["samples"]).0, Some(1));
    assert_eq!(
        lines(dir.path(), &["--config", "other.yml", "samples"]).0,
        Some(0)
    );
    put(dir.path(), ".agent-implement/config.yml", permitted);
    assert_eq!(lines(dir.path(), &["samples"]), (Some(0), vec![]));

    put(dir.path(), "bad.yml", "guard: {allow: ['a[']}\n");
    for (arguments, said) in [
        (vec!["--config", "bad.yml"], "Cannot use bad.yml"),
        (vec!["--config", "none.yml"], "Cannot read none.yml"),
        (vec!["nowhere"], "Cannot read nowhere"),
        (vec!["--staged", "samples"], "cannot be used with"),
        (vec!["--diff", "main"], "\"main\" is no range"),
        (vec!["--staged"], "not a git repository"),
    ] {
        let done = scan(dir.path(), &arguments);
        let told = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(2), "{arguments:?}: {told}");
        assert!(told.contains(said), "{arguments:?}: {told}");
    }
}

/// A file that is larger than what is held of it: a token on its last line is found there.
#[test]
fn a_huge_file_is_judged_to_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let mut content = "0123456789abcde\n".repeat(30 << 16);
    content.push_str(&token());
    put(dir.path(), "huge.txt", content);
    let at = (30 << 16) + 1;
    assert_eq!(
        lines(dir.path(), &["huge.txt"]).1,
        [git_token("huge.txt", at)]
    );
}

#[test]
fn only_what_is_new_in_git_counts() {
    let dir = repository();
    let new = format!(
        "const old = '{0}';\n\nconst other = '{1}';\n",
        token(),
        token().replace("q7", "r8")
    );
    put(dir.path(), "old.ts", &new);
    put(dir.path(), "unstaged.ts", token());
    assert!(
        git(dir.path(), "git add old.ts && git mv README.md secret.pem")
            .status
            .success()
    );
    let staged = [git_token("old.ts", 3)];
    assert_eq!(lines(dir.path(), &["--staged"]), (Some(1), staged.to_vec()));

    // What is committed is judged from where the two histories part.
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

/// As git calls it before a commit, the first one and one of a single path included.
#[test]
fn a_hook_lets_only_clean_commits_pass() {
    let dir = tempfile::tempdir().unwrap();
    let hook = format!("#!/bin/sh\nexec {PROGRAM} guard scan --staged\n");
    let init = "git init -q -b main . && git config user.email a@b && git config user.name n";
    assert!(git(dir.path(), init).status.success());
    put(dir.path(), ".git/hooks/pre-commit", hook);
    let hook = dir.path().join(".git/hooks/pre-commit");
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).unwrap();
    put(dir.path(), "a.ts", token());
    put(dir.path(), "b.ts", "fine\n");
    let refused = git(dir.path(), "git add -A && git commit -qm first");
    let told = String::from_utf8_lossy(&refused.stderr);
    let told = format!("{told}{}", String::from_utf8_lossy(&refused.stdout));
    assert!(!refused.status.success(), "{told}");
    assert!(
        told.contains("blocks a.ts: tokens and auth files (GitHub token) (line 1)"),
        "{told}"
    );
    let clean = git(
        dir.path(),
        "git rm -q --cached a.ts && git commit -qm first",
    );
    assert!(clean.status.success(), "{clean:?}");
    // Of a path alone: git shows the hook another index, without what is staged beside it.
    let alone = "git add a.ts && echo more >>b.ts && git commit -qm second b.ts";
    assert!(git(dir.path(), alone).status.success());
    assert!(hook.exists(), "the repository stays as it was");
}

/// What a repository's configuration can make git start is not started.
#[test]
fn nothing_of_the_repository_is_executed() {
    let dir = repository();
    let trap = dir.path().join("trap");
    put(
        dir.path(),
        "trap.sh",
        "#!/bin/sh\ntouch \"$(dirname \"$0\")/trap\"\ncat\n",
    );
    put(dir.path(), ".gitattributes", "* filter=t diff=t\n");
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
