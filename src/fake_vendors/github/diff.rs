//! Diffs of a bare repository.

use super::git::BareRepository;

/// Changed file of a diff.
pub(crate) struct FileDiff {
    pub path: String,
    pub status: String,
    pub additions: u64,
    pub deletions: u64,
    pub patch: String,
}

impl BareRepository {
    /// Returns the changed files from `a` to `b`.
    pub(crate) fn diff(&self, a: &str, b: &str) -> anyhow::Result<Vec<FileDiff>> {
        self.changed_files(&[a, b])
    }

    /// Returns the files that `head` changes since it left `base`. Fails if they have no common commit.
    pub(crate) fn diff_since_base(&self, base: &str, head: &str) -> anyhow::Result<Vec<FileDiff>> {
        self.changed_files(&[&format!("{base}...{head}")])
    }

    fn changed_files(&self, range: &[&str]) -> anyhow::Result<Vec<FileDiff>> {
        let options = ["diff", "--no-renames", "--raw", "--numstat", "--patch"];
        let out = self.output_text(&[&options, range, &["--"]].concat())?;
        Ok(parse_diff(&out))
    }
}

/// Parses the output of `git diff --raw --numstat --patch`: three parts with the files in the same order.
fn parse_diff(out: &str) -> Vec<FileDiff> {
    let (summary, patches) = out.split_once("\n\n").unwrap_or((out, ""));
    let raw = summary.lines().filter(|line| line.starts_with(':'));
    let numbers = summary.lines().filter(|line| !line.starts_with(':'));
    let mut patches = split_patches(patches).into_iter();
    let files = raw.zip(numbers).filter_map(|(raw, numbers)| {
        let (attributes, path) = raw.split_once('\t')?;
        let mut numbers = numbers.split('\t').map(|n| n.parse().unwrap_or(0));
        let patch = patches.next().unwrap_or_default();
        Some(FileDiff {
            path: path.to_owned(),
            status: match attributes.chars().last() {
                Some('A') => "added",
                Some('D') => "removed",
                _ => "modified",
            }
            .to_owned(),
            additions: numbers.next().unwrap_or(0),
            deletions: numbers.next().unwrap_or(0),
            patch: patch
                .find("@@")
                .map(|at| patch[at..].trim_end().to_owned())
                .unwrap_or_default(),
        })
    });
    files.collect()
}

/// Splits the patch part of a diff by files. A file that changes its type has two consecutive patches.
fn split_patches(patches: &str) -> Vec<String> {
    let (mut split, mut last_header) = (Vec::<String>::new(), None);
    for line in patches.split_inclusive('\n') {
        let is_header = line.starts_with("diff --git ");
        if is_header && last_header != Some(line) {
            last_header = Some(line);
            split.push(String::new());
        }
        if let Some(patch) = split.last_mut() {
            patch.push_str(line);
        }
    }
    split
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn diffs_are_as_git_says() {
        let folder = tempfile::tempdir().unwrap();
        let git = BareRepository::init(folder.path().join("acme/shop.git"), "main").unwrap();
        let commit = |branch: &str, files: &[(&str, Option<&[u8]>)]| {
            git.commit(branch, files, "Change", ("A", "a@example.com"))
                .unwrap()
        };
        let old: [(&str, Option<&[u8]>); 3] = [
            ("a.txt", Some(b"one\n")),
            ("b.bin", Some(b"x\0y")),
            ("gone.txt", Some(b"1\n2\n")),
        ];
        let base = commit("main", &old);
        git.update_ref("refs/heads/work/x", &base).unwrap();
        let new: [(&str, Option<&[u8]>); 5] = [
            ("a.txt", Some(b"one\n\ndiff --git a/x b/x\n")),
            ("b.bin", Some(b"x\0z")),
            ("empty.txt", Some(b"")),
            ("gone.txt", None),
            ("z.sh", Some(b"#!/bin/sh\n")),
        ];
        let head = commit("work/x", &new);
        let files = git.diff(&base, &head).unwrap();
        let summary: Vec<_> = files
            .iter()
            .map(|file| {
                let FileDiff { path, status, .. } = file;
                (
                    path.as_str(),
                    status.as_str(),
                    file.additions,
                    file.deletions,
                )
            })
            .collect();
        let expected = [
            ("a.txt", "modified", 2, 0),
            ("b.bin", "modified", 0, 0),
            ("empty.txt", "added", 0, 0),
            ("gone.txt", "removed", 0, 2),
            ("z.sh", "added", 1, 0),
        ];
        assert_eq!(summary, expected);
        let patches: Vec<&str> = files.iter().map(|file| file.patch.as_str()).collect();
        let expected = [
            "@@ -1 +1,3 @@\n one\n+\n+diff --git a/x b/x",
            "",
            "",
            "@@ -1,2 +0,0 @@\n-1\n-2",
            "@@ -0,0 +1 @@\n+#!/bin/sh",
        ];
        assert_eq!(patches, expected);

        let moved_base = commit("main", &[("other.txt", Some(b"later\n"))]);
        assert_eq!(git.diff_since_base(&moved_base, &head).unwrap().len(), 5);
    }
}
