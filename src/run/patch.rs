//! Patch of work that could not be pushed, or that a run continues after a question. It is part of the result,
//! because the container is deleted with its files.

use super::git::{Git, GitError};
use domain::limits::MAX_PATCH_BYTES;

/// Bytes reserved for the header and for growth by redaction.
const RESERVED_BYTES: usize = 5_000;

/// First characters of each file in a patch.
const FILE_PREFIX: &str = "diff --git ";

/// Creates the patch between two commits, with a header that says how to apply it. Files that
/// exceed the limit are left out whole, so that the rest still applies.
pub(crate) async fn create(
    git: &Git,
    branch: &str,
    from: &str,
    to: &str,
) -> Result<String, GitError> {
    let patch = git.patch(from, to).await?;
    let head = format!("# Could not be pushed to {branch}. Apply it on {from} with git apply.\n");
    Ok(limit_size(&head, &patch, MAX_PATCH_BYTES))
}

/// Creates the patch of work that a later run continues from the commit `from`.
///
/// # Errors
/// The reason why the patch would not reproduce the tree: it is too large, or `redact` changes it.
pub(crate) async fn of_unfinished_work(
    git: &Git,
    from: &str,
    tree: &str,
    redact: impl Fn(&str) -> String,
) -> Result<String, String> {
    let diff = git.patch(from, tree).await;
    let diff = diff.map_err(|error| error.to_string())?;
    let head = format!("# Work before a question. Apply it on {from} with git apply.\n");
    let patch = limit_size(&head, &diff, MAX_PATCH_BYTES);
    if patch.len() < head.len() + diff.len() {
        return Err("its patch is too large".to_owned());
    }
    if redact(&patch) != patch {
        return Err("its patch contains a secret".to_owned());
    }
    // Text in another encoding than UTF-8 does not survive the report.
    match git.apply_to_tree(from, &patch).await {
        Ok(reproduced) if reproduced == tree => Ok(patch),
        Ok(_) => Err("its patch does not reproduce it".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn limit_size(head: &str, patch: &str, max: usize) -> String {
    let starts: Vec<usize> = patch
        .match_indices(FILE_PREFIX)
        .map(|(at, _)| at)
        .filter(|at| *at == 0 || patch.as_bytes()[at - 1] == b'\n')
        .collect();
    let ends = starts.iter().skip(1).copied().chain([patch.len()]);
    let (mut kept, mut used, mut left_out) = (String::new(), RESERVED_BYTES, 0);
    for (start, end) in starts.iter().zip(ends) {
        let file = &patch[*start..end];
        // Measured as JSON: a control character takes six bytes there.
        let cost = serde_json::Value::from(file).to_string().len();
        if used + cost <= max {
            kept.push_str(file);
            used += cost;
        } else {
            left_out += 1;
        }
    }
    match left_out {
        0 => format!("{head}{kept}"),
        _ => format!("{head}# {left_out} file(s) are left out: too large.\n{kept}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_out_whole_files_that_exceed_the_limit() {
        let file = |name: &str, lines: usize| {
            let added = "+diff --git of a line\n".repeat(lines);
            format!("{FILE_PREFIX}a/{name} b/{name}\n{added}")
        };
        let whole = [file("a", 1), file("b", 100), file("c", 2)].concat();
        assert_eq!(limit_size("# h\n", &whole, 10_000), format!("# h\n{whole}"));
        let cut = limit_size("# h\n", &whole, RESERVED_BYTES + 300);
        assert!(cut.starts_with("# h\n# 1 file(s) are left out"), "{cut}");
        assert!(cut.contains("a/c b/c") && !cut.contains("a/b b/b"), "{cut}");
        assert_eq!(limit_size("# h\n", "", 300), "# h\n");
    }
}
