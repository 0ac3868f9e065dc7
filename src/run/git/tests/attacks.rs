//! Planted configuration, programs and servers: nothing is executed, and the token is nowhere.

use data_encoding::BASE64;
use tokio::time::Instant;

use super::{create_fixture, shell};
use crate::child;
use crate::git::{GIT_TIMEOUT, Git, GitError, Transport};
use domain::secret::Secret;
use test_support::{StubReply, TestServer};
use vendors::http::{Proxies, RelayClient};

#[tokio::test]
async fn executes_nothing_planted_in_dot_git() {
    let fixture = create_fixture("echo a > a.txt").await;
    let trap = fixture.trap();
    shell(
        fixture.tree(),
        &format!(
            "git config core.fsmonitor {trap}; git config diff.external {trap}; git config filter.x.clean {trap}
             git config filter.x.smudge {trap}; git config filter.x.process {trap}; git config gpg.program {trap}
             git config commit.gpgsign true; git config core.sshCommand {trap}; git config credential.helper {trap}
             git config core.hooksPath {dir}/hooks; git config core.pager {trap}; git config alias.add '!{trap}'
             git config diff.x.textconv {trap}; git config remote.origin.receivepack {trap}
             git config url.{dir}/evil.git.insteadOf {dir}/host.git
             mkdir -p {dir}/hooks .git/hooks .git/info
             for hook in pre-commit commit-msg post-commit pre-push reference-transaction post-index-change post-checkout; do
               cp {trap} {dir}/hooks/$hook; cp {trap} .git/hooks/$hook; done
             echo '* filter=x diff=x' > .git/info/attributes
             echo '* filter=x diff=x merge=x' > .gitattributes
             echo b >> a.txt; echo new > new.txt; git init -q --bare {dir}/evil.git",
            dir = fixture.dir.path().display()
        ),
    );
    let (staged, commit) = fixture.stage_commit_push().await;
    fixture.assert_nothing_executed();
    assert_eq!(staged.blocked, []);
    let host = fixture.dir.path().join("host.git");
    assert_eq!(shell(&host, "git rev-parse work"), commit);
    assert_eq!(
        shell(
            &fixture.dir.path().join("evil.git"),
            "git branch --list work"
        ),
        "",
        "the rewritten URL was not used"
    );
    let names = shell(&host, "git ls-tree --name-only work");
    assert_eq!(names, ".gitattributes\na.txt\nnew.txt");
}

#[tokio::test]
async fn executes_and_reads_nothing_planted_in_the_runs_git_directory() {
    let fixture = create_fixture("echo a > a.txt").await;
    let trap = fixture.trap();
    let clean = shell(fixture.tree(), "echo clean | git hash-object --stdin");
    shell(
        fixture.tree(),
        &format!(
            "echo secret > s.txt; export GIT_DIR={dir}/own; git hash-object -w s.txt >/dev/null
             echo clean | git hash-object -w --stdin >/dev/null
             git replace $(git hash-object s.txt) {clean}
             git config filter.x.clean {trap}; git config filter.x.required true; git config core.fsmonitor {trap}
             git config include.path {dir}/more; git config url.{dir}/evil.git.insteadOf {dir}/host.git
             git config extensions.worktreeConfig true; git config diff.external {trap}
             mkdir -p $GIT_DIR/hooks $GIT_DIR/info; echo '* filter=x' > $GIT_DIR/info/attributes
             cp {trap} $GIT_DIR/hooks/reference-transaction; cp {trap} $GIT_DIR/hooks/pre-push
             printf '[filter \"x\"]\\n\\tclean = {trap}\\n' > $GIT_DIR/config.worktree
             git init -q --bare {dir}/evil.git",
            dir = fixture.dir.path().display()
        ),
    );
    let (staged, _) = fixture.stage_commit_push().await;
    fixture.assert_nothing_executed();
    let changes = fixture
        .git
        .changes(&fixture.base, &staged.tree)
        .await
        .unwrap();
    let mut read = Vec::new();
    fixture
        .git
        .for_each_content(&changes, |contents| {
            read = contents.after.unwrap_or_default().to_vec()
        })
        .await
        .unwrap();
    assert_eq!(read, b"secret\n", "the guard reads what is pushed");
    let host = fixture.dir.path().join("host.git");
    assert_eq!(shell(&host, "git show work:s.txt"), "secret");
}

#[tokio::test]
async fn ignores_attributes_of_the_repository() {
    let fixture = create_fixture(
        "echo a > a.txt; echo '* filter=lfs diff=lfs merge=lfs ident' > .gitattributes
         printf '[filter \"lfs\"]\\n\\tclean = touch /tmp/never\\n' > .gitconfig; mkdir .githooks",
    )
    .await;
    std::fs::write(fixture.tree().join("a.txt"), "changed").unwrap();
    let (staged, _) = fixture.stage_commit_push().await;
    assert_eq!(staged.blocked, []);
    fixture.assert_nothing_executed();
}

/// The server echoes the token to git, which prints server messages.
#[tokio::test]
async fn token_is_in_no_argument_file_or_message() {
    test_support::install_tls();
    let fixture = create_fixture("echo a > a.txt").await;
    let token = Secret::new("ghs_verysecretvalue0123456789");
    let server = TestServer::start(|request, _| {
        let header = request.header("authorization").unwrap_or_default();
        let decoded = BASE64.decode(header.trim_start_matches("Basic ").as_bytes());
        let decoded = String::from_utf8(decoded.unwrap_or_default()).unwrap_or_default();
        let body = format!("no access with {header} or {decoded}");
        StubReply::Response(403, vec![("content-type", "text/plain".into())], body)
    })
    .await;
    let git = Git {
        relay_client: Some(RelayClient::new(&Proxies::default()).unwrap()),
        url: format!("{}/o/r.git", server.url),
        transport: Transport::Web,
        ..fixture.git.clone()
    };
    let error = git.remote_head(Some(&token), "main").await.unwrap_err();
    let GitError::Failed {
        code: 128, stderr, ..
    } = &error
    else {
        panic!("{error}")
    };
    let credentials = BASE64.encode(format!("x-access-token:{}", token.expose()).as_bytes());
    let requests = server.requests();
    assert_eq!(
        requests[0].header("authorization"),
        Some(format!("Basic {credentials}").as_str())
    );
    assert!(
        stderr.contains("no access with Basic [redacted] or x-access-token:[redacted]"),
        "{stderr}"
    );
    assert!(
        stderr.contains(&format!("unable to access '{}/", git.url)),
        "{stderr}"
    );
    for form in [token.expose(), &credentials] {
        assert!(!error.to_string().contains(form), "{error}");
        let found = shell(fixture.dir.path(), &format!("grep -rlF {form} . || true"));
        assert_eq!(found, "");
    }
}

#[tokio::test]
async fn passes_listed_variables_only_to_git() {
    let fixture = create_fixture("echo a > a.txt").await;
    let mut spec = fixture.git.spec([]);
    spec.program = "env".into();
    spec.args = vec!["-0".into()];
    let output = child::capture(&spec, Instant::now() + GIT_TIMEOUT)
        .await
        .unwrap();
    let mut names: Vec<String> = String::from_utf8_lossy(&output.stdout)
        .split('\0')
        .filter_map(|pair| Some(pair.split_once('=')?.0.to_owned()))
        .collect();
    names.sort();
    assert_eq!(
        names,
        [
            "GIT_ALLOW_PROTOCOL",
            "GIT_ATTR_NOSYSTEM",
            "GIT_CONFIG_GLOBAL",
            "GIT_CONFIG_NOSYSTEM",
            "GIT_LFS_SKIP_SMUDGE",
            "GIT_LITERAL_PATHSPECS",
            "GIT_NO_REPLACE_OBJECTS",
            "GIT_OPTIONAL_LOCKS",
            "GIT_TERMINAL_PROMPT",
            "HOME",
            "LC_ALL",
            "PATH",
        ]
    );
}
