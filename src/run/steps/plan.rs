//! Plan step: the agent writes ticket comments into files, which are posted on the ticket.
//!
//! The work tree is untrusted: the repository may contain links in the comments folder. The folder
//! is recreated before the agent starts, and only regular files are read afterwards. A plan is
//! never committed: planning runs have no push step and no write access.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::agent_pass::run_agent_pass;
use super::question;
use crate::agent::AgentRole;
use crate::context::{RunContext, StepOutcome};
use crate::failure::RunFailure;
use crate::folders;
use crate::git::staging::AI_OUTPUT;
use crate::prompts::{self, PromptMaterial};
use domain::limits;
use domain::report::FailureCode;

/// Folder of the comments, relative to the work tree.
const FOLDER: &str = "ai-output/comments";

/// Executes the step.
pub(super) async fn execute(run: &mut RunContext) -> Result<StepOutcome, RunFailure> {
    run.workspace.kill_orphan_processes().await?;
    let root = run.workspace.folders.work_tree();
    recreate_folder(&root).map_err(|error| {
        RunFailure::other(format!("cannot create the folder {FOLDER}: {error}"))
    })?;
    let role = AgentRole::Plan { folder: AI_OUTPUT };
    let prompt = prompts::plan(&PromptMaterial::of(run), FOLDER);
    let answer = run_agent_pass(run, role, prompt).await?;
    run.workspace.kill_orphan_processes().await?;
    let questions = question::questions_of_pass(run);
    if !questions.is_empty() {
        return Err(question::ask(run, questions, None).await);
    }
    let comments = read_comments(&root.join(FOLDER))
        .map_err(|error| RunFailure::other(format!("cannot read the plan: {error}")))?;
    let surplus = comments.len().saturating_sub(limits::MAX_RUN_COMMENTS);
    if surplus > 0 {
        run.reporting.log(&format!(
            "Dropped {surplus} comment(s): at most {} are posted",
            limits::MAX_RUN_COMMENTS
        ));
    }
    let message = answer.text.trim();
    run.publication.ticket_comments = match (comments.is_empty(), message.is_empty()) {
        (false, _) => comments
            .into_iter()
            .take(limits::MAX_RUN_COMMENTS)
            .collect(),
        (true, false) => vec![message.to_owned()],
        (true, true) => return Err(RunFailure::new(FailureCode::NoChanges, "the plan is empty")),
    };
    let plan = run.publication.ticket_comments.join("\n\n---\n\n");
    run.reporting.add_output("plan", json!(plan));
    Ok(StepOutcome::Passed(json!({
        "comments": run.publication.ticket_comments.len(),
        "leftOut": surplus,
        "usage": run.reporting.usage(),
    })))
}

/// Creates an empty comments folder, replacing whatever the repository has there.
fn recreate_folder(root: &Path) -> std::io::Result<()> {
    folders::remove(&root.join(AI_OUTPUT))?;
    fs::create_dir_all(root.join(FOLDER))
}

/// Reads the comments, sorted by file name. Empty comments are skipped.
fn read_comments(folder: &Path) -> std::io::Result<Vec<String>> {
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let is_comment = entry
            .path()
            .extension()
            .is_some_and(|ending| ending == "md");
        // The type of the entry itself: links are skipped.
        if is_comment && entry.file_type()?.is_file() {
            files.push(entry.path());
        }
    }
    files.sort();
    let mut comments = Vec::new();
    for file in files {
        let mut bytes = Vec::new();
        // One byte above the limit shows that the comment was cut.
        let limit = limits::MAX_COMMENT_BYTES as u64 + 1;
        fs::File::open(&file)?.take(limit).read_to_end(&mut bytes)?;
        let comment = String::from_utf8_lossy(&bytes).trim().to_owned();
        if !comment.is_empty() {
            comments.push(comment);
        }
    }
    Ok(comments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_regular_files_sorted_by_name() {
        let root = tempfile::tempdir().unwrap();
        let secret = root.path().join("secret");
        fs::create_dir(&secret).unwrap();
        fs::write(secret.join("kept"), "the secret").unwrap();
        std::os::unix::fs::symlink(&secret, root.path().join(AI_OUTPUT)).unwrap();
        recreate_folder(root.path()).unwrap();
        assert!(secret.join("kept").exists(), "a link is not followed");

        let folder = root.path().join(FOLDER);
        for (name, text) in [
            ("10-last.md", "last"),
            ("01-first.md", "\n# first\n"),
            ("02-empty.md", " \n"),
            ("03-next.md", "next"),
            ("notes.txt", "not a comment"),
        ] {
            fs::write(folder.join(name), text).unwrap();
        }
        fs::create_dir(folder.join("04-folder.md")).unwrap();
        std::os::unix::fs::symlink(secret.join("kept"), folder.join("05-link.md")).unwrap();
        assert_eq!(read_comments(&folder).unwrap(), ["# first", "next", "last"]);

        fs::write(folder.join("20-long.md"), "x".repeat(1 << 20)).unwrap();
        let comments = read_comments(&folder).unwrap();
        assert_eq!(comments[3].len(), limits::MAX_COMMENT_BYTES + 1);
    }
}
