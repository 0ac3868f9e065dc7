//! Work that could not be pushed, as a patch that goes with the result: a container takes its files
//! with it.

use super::git::{Git, GitError};
use domain::limits::MAX_PATCH_BYTES;

/// Kept for the head, and for what redaction adds.
const ROOM: usize = 5_000;

/// Begins each file of a patch.
const FILE: &str = "diff --git ";

/// What leads from one commit to another, with a word on how to apply it. Files that do not fit are
/// left out whole, so that the rest still applies.
pub async fn create(git: &Git, branch: &str, from: &str, to: &str) -> Result<String, GitError> {
    let patch = git.patch(from, to).await?;
    let head = format!("# Could not be pushed to {branch}. Apply it on {from} with git apply.\n");
    Ok(fitting(&head, &patch, MAX_PATCH_BYTES))
}

fn fitting(head: &str, patch: &str, max: usize) -> String {
    let starts: Vec<usize> = patch
        .match_indices(FILE)
        .map(|(at, _)| at)
        .filter(|at| *at == 0 || patch.as_bytes()[at - 1] == b'\n')
        .collect();
    let ends = starts.iter().skip(1).copied().chain([patch.len()]);
    let (mut kept, mut taken, mut left_out) = (String::new(), ROOM, 0);
    for (start, end) in starts.iter().zip(ends) {
        let file = &patch[*start..end];
        // As it travels: control characters take six times their room there.
        let cost = serde_json::Value::from(file).to_string().len();
        if taken + cost <= max {
            kept.push_str(file);
            taken += cost;
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
    fn files_that_do_not_fit_are_left_out_whole() {
        let file = |name: &str, lines: usize| {
            let added = "+diff --git of a line\n".repeat(lines);
            format!("{FILE}a/{name} b/{name}\n{added}")
        };
        let whole = [file("a", 1), file("b", 100), file("c", 2)].concat();
        assert_eq!(fitting("# h\n", &whole, 10_000), format!("# h\n{whole}"));
        let cut = fitting("# h\n", &whole, ROOM + 300);
        assert!(cut.starts_with("# h\n# 1 file(s) are left out"), "{cut}");
        assert!(cut.contains("a/c b/c") && !cut.contains("a/b b/b"), "{cut}");
        assert_eq!(fitting("# h\n", "", 300), "# h\n");
    }
}
